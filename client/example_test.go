package client_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/seed-8e62c83d/mur/client"
)

// A program is started in a session of its own, types into it, and waits for its
// end. Whatever happens to this process meanwhile, the same op finds the session.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	root, err := os.MkdirTemp("", "mur-e-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(root)
	c, err := client.New(client.Options{Root: root, Bin: os.Getenv("MUR_CLIENT_TEST_BIN")})
	if err != nil {
		panic(err)
	}
	defer c.Close()

	op := client.NewMutationID()
	s, err := c.Create(ctx, client.CreateOptions{Op: op, Name: "example"})
	if err != nil {
		panic(err)
	}
	defer s.Close()
	started, err := s.Start(ctx, op, client.StartSpec{
		Program: []byte("/bin/sh"),
		Args:    [][]byte{[]byte("-c"), []byte("read name; echo hello $name; exit 3")},
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(started.Answer.State)
	if _, err := s.Input(ctx, []byte("world\r")); err != nil {
		panic(err)
	}
	end, err := s.WaitEnd(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Println(end.State, *end.Record.ExitCode)
	if _, err := s.Retire(ctx, client.NewMutationID()); err != nil {
		panic(err)
	}
	if err := s.Purge(ctx); err != nil {
		panic(err)
	}
	// Output:
	// running
	// ended 3
}
