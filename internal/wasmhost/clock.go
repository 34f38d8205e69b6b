package wasmhost

import (
	"time"

	"github.com/seed-8e62c83d/mur/internal/capsule"
)

const (
	// clockStep is how fine a guest sees time. Finer clocks are a tool for measuring what other programs do.
	clockStep = int64(time.Millisecond)
	// monotonicStart is not zero because guests take zero for a broken clock, and not the host's uptime.
	monotonicStart = int64(time.Second)
	// fixedStart is the first instant of the fixed clock, 2022-01-01 UTC.
	fixedStart = int64(1640995200) * int64(time.Second)

	clockRealtime  = 0
	clockMonotonic = 1

	// longestWait is as good as for ever, and small enough to add to a clock.
	longestWait = int64(1) << 60
)

// clocks are the clocks of one guest. The fixed clock moves on only while the guest sleeps, by just as much as it
// asked to sleep, so that it sees the same times in every run; the sleep itself is real.
type clocks struct {
	grant capsule.Clock
	start time.Time
	slept int64 // fixed: what was slept so far
}

func coarse(ns int64) int64 { return ns - ns%clockStep }

func coarseUp(ns int64) int64 { return coarse(ns + clockStep - 1) }

func (c *clocks) fineMonotonic(now time.Time) int64 { return monotonicStart + int64(now.Sub(c.start)) }

// monotonic is the guest's monotonic clock.
func (c *clocks) monotonic() int64 {
	if c.grant == capsule.ClockFixed {
		return monotonicStart + c.slept
	}
	return coarse(c.fineMonotonic(time.Now()))
}

// wall is the guest's wall clock in nanoseconds since the epoch.
func (c *clocks) wall() int64 {
	if c.grant == capsule.ClockFixed {
		return fixedStart + c.slept
	}
	return coarse(time.Now().UnixNano())
}

// alarm is when a subscription to a clock is due.
type alarm struct {
	at    time.Time // by the host's monotonic clock
	wall  int64     // when not zero, by the host's wall clock instead, which may be set meanwhile
	slept int64     // fixed: what the clock shows then
}

// alarmFor reads a subscription. The times are the guest's, so a relative one is due when the coarse clock has moved
// on by that much, and never earlier than that much of real time.
func (c *clocks) alarmFor(id uint32, timeout uint64, absolute bool) alarm {
	now := time.Now()
	ns := int64(min(timeout, uint64(longestWait)))
	if c.grant == capsule.ClockFixed {
		if absolute {
			here := c.monotonic()
			if id == clockRealtime {
				here = c.wall()
			}
			ns = max(int64(min(timeout, 1<<63-1))-here, 0)
			ns = min(ns, longestWait)
		}
		return alarm{at: now.Add(time.Duration(ns)), slept: c.slept + ns}
	}
	if absolute && id == clockRealtime {
		return alarm{wall: coarseUp(int64(min(timeout, 1<<62)))}
	}
	fine := c.fineMonotonic(now)
	if absolute {
		return alarm{at: now.Add(time.Duration(coarseUp(ns) - fine))}
	}
	return alarm{at: now.Add(time.Duration(max(ns, coarseUp(coarse(fine)+ns)-fine)))}
}

// left is how long to wait before looking at the alarm again. The wall clock may be set, so it is looked at often.
func (a alarm) left(now time.Time) time.Duration {
	if a.wall != 0 {
		return max(min(time.Duration(a.wall-now.UnixNano()), time.Second), 0)
	}
	return max(a.at.Sub(now), 0)
}

// due says whether the alarm has gone off.
func (a alarm) due(now time.Time) bool {
	if a.wall != 0 {
		return now.UnixNano() >= a.wall
	}
	return !now.Before(a.at)
}

// fired moves the fixed clock to the alarm that woke the guest.
func (c *clocks) fired(a alarm) {
	if c.grant == capsule.ClockFixed {
		c.slept = max(c.slept, a.slept)
	}
}
