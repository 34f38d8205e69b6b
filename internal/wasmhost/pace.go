package wasmhost

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// pacer collects garbage inside host calls. A collection that begins while guest code runs waits for the guest's next
// host call and stops every goroutine meanwhile, so that a guest in a loop would freeze the signals, deadlines and
// limits that are to end it. So the collector is switched off while a guest runs.
type pacer struct {
	calls   uint32
	next    uint64
	sample  []metrics.Sample
	percent int
	procs   int
}

const (
	paceEvery = 1024     // host calls between two looks at the heap
	paceSlack = 32 << 20 // garbage that is not worth a collection
)

// startPacer switches the collector off, and makes sure that a spinning guest leaves a processor for everything else.
func startPacer() *pacer {
	p := &pacer{sample: []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}, procs: runtime.GOMAXPROCS(0)}
	if p.procs < 2 {
		runtime.GOMAXPROCS(2)
	}
	p.percent = debug.SetGCPercent(-1)
	p.next = 2*p.heap() + paceSlack
	return p
}

// end puts everything back. It must not be called while guest code still runs.
func (p *pacer) end() {
	debug.SetGCPercent(p.percent)
	if p.procs < 2 {
		runtime.GOMAXPROCS(p.procs)
	}
}

func (p *pacer) heap() uint64 {
	metrics.Read(p.sample)
	return p.sample[0].Value.Uint64()
}

func (p *pacer) pace() {
	if p.calls++; p.calls%paceEvery != 0 {
		return
	}
	if p.heap() < p.next {
		return
	}
	runtime.GC()
	p.next = 2*p.heap() + paceSlack
}
