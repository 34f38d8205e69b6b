// Command mur-guardian holds the control authority over one session.
package main

import (
	"os"

	"github.com/seed-8e62c83d/mur/internal/guardian"
)

func main() { os.Exit(guardian.Run(os.Args[1:], os.Stdout, os.Stderr)) }
