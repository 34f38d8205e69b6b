// Probe is the guest of the tests: each command does one thing a guest can do and says what it saw.
package main

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {
	if len(os.Args) < 2 {
		return
	}
	args := os.Args[2:]
	switch os.Args[1] {
	case "args":
		fmt.Println(strings.Join(os.Args, "|"))
	case "env":
		fmt.Println(strings.Join(os.Environ(), "|"))
	case "exit":
		os.Exit(number(args[0]))
	case "cat":
		_, err := io.Copy(os.Stdout, os.Stdin)
		say("err", err)
	case "line":
		// The first word of what is read tells the test that the guest is about to wait.
		fmt.Println("ready")
		line, err := bufio.NewReader(os.Stdin).ReadString('\n')
		say(strconv.Quote(line), err)
	case "sleep":
		d, _ := time.ParseDuration(args[0])
		start := time.Now()
		fmt.Println("ready")
		time.Sleep(d)
		say("slept", time.Since(start))
	case "tick":
		tick()
	case "clock":
		a, b := time.Now(), time.Now()
		say(a.UnixNano()%1e6, b.Sub(a)%time.Millisecond, a.UTC().Format(time.RFC3339))
	case "random":
		b := make([]byte, 16)
		_, err := rand.Read(b)
		say(hex.EncodeToString(b), err)
	case "hog":
		hog(number(args[0]))
	case "flood":
		flood(number(args[0]))
	case "spin":
		fmt.Println("ready")
		for i := 0; ; i++ {
			if i < 0 {
				break
			}
		}
	case "busy":
		busy(args[0])
	case "ls":
		ls(args[0])
	case "do":
		for _, script := range args {
			do(strings.Split(script, " "))
		}
	case "race":
		race(args[0])
	case "tty":
		tty(args)
	case "polls":
		polls()
	}
}

func say(values ...any) { fmt.Println(values...) }

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

// tick counts ticks until a line comes.
func tick() {
	lines := make(chan string)
	go func() {
		s, _ := bufio.NewReader(os.Stdin).ReadString('\n')
		lines <- s
	}()
	ticker := time.NewTicker(5 * time.Millisecond)
	ticks := 0
	for {
		select {
		case <-ticker.C:
			if ticks++; ticks == 5 {
				fmt.Println("ready")
			}
		case s := <-lines:
			say("ticks", ticks >= 5, strconv.Quote(s))
			return
		}
	}
}

// hog touches memory until it has as much as was asked for.
func hog(mib int) {
	var kept [][]byte
	for range mib {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		kept = append(kept, b)
	}
	say("kept", len(kept))
}

func flood(bytes int) {
	b := []byte(strings.Repeat("x", 63) + "\n")
	for n := 0; bytes == 0 || n < bytes; n += len(b) {
		if _, err := os.Stdout.Write(b); err != nil {
			fmt.Fprintln(os.Stderr, "write:", err)
			os.Exit(3)
		}
	}
}

// busy works on a file and never waits, until it has done so many rounds that a gentle end must have let it.
func busy(path string) {
	fmt.Println("ready")
	for i := 0; ; i++ {
		if err := os.WriteFile(path, []byte(strconv.Itoa(i)), 0o600); err != nil {
			say(err)
			return
		}
		if i == 2000 {
			_ = os.WriteFile(path+".done", nil, 0o600)
			time.Sleep(time.Hour)
		}
	}
}

func ls(dir string) {
	entries, err := os.ReadDir(dir)
	var out []string
	for _, e := range entries {
		kind := "-"
		if e.IsDir() {
			kind = "d"
		}
		out = append(out, kind+e.Name())
	}
	say(strings.Join(out, " "), err)
}
