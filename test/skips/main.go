// Command skips reads `go test -json` and prints go test's own output, quietly
// for what passes. It fails if a test failed, or skipped for a reason that is
// not on its list. Only `make test` runs it.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// earned are the reasons for which a test outside the VM may skip; all of them
// are run by another tier.
var earned = []string{
	"runs in the VM tier",
	"`make test` runs it",
}

type line struct {
	Action, Package, Test, Output string
}

func main() {
	output := map[string]string{}
	failed := false
	scanner := bufio.NewScanner(os.Stdin)
	scanner.Buffer(nil, 1<<24)
	for scanner.Scan() {
		var l line
		if json.Unmarshal(scanner.Bytes(), &l) != nil {
			fmt.Println(scanner.Text())
			continue
		}
		key := l.Package + " " + l.Test
		switch l.Action {
		case "output":
			if l.Test == "" {
				fmt.Print(l.Output)
			} else {
				output[key] += l.Output
			}
		case "fail":
			failed = true
			fmt.Print(output[key])
		case "skip":
			if l.Test == "" {
				continue
			}
			fmt.Print(output[key])
			if !isEarned(output[key]) && os.Getuid() == 0 {
				failed = true
				fmt.Printf("error: %s skips for a reason that is not on the list in test/skips\n", key)
			}
		}
	}
	if failed {
		os.Exit(1)
	}
}

func isEarned(output string) bool {
	for _, reason := range earned {
		if strings.Contains(output, reason) {
			return true
		}
	}
	return false
}
