// Command actor does one named file operation and prints the errno: "0" or a
// name such as EACCES. Tests run it in containers; it is static, so that it
// needs nothing of an image. Only tests use it.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "batch" {
		batch()
		return
	}
	if len(os.Args) < 2 || operations[os.Args[1]] == nil {
		var names []string
		for name := range operations {
			names = append(names, name)
		}
		slices.Sort(names)
		fmt.Fprintf(os.Stderr, "usage: actor OPERATION ARG…\n       actor batch < LINES\noperations: %s\n", strings.Join(names, " "))
		os.Exit(2)
	}
	err := operations[os.Args[1]](os.Args[2:])
	var number unix.Errno
	switch {
	case err == nil:
		fmt.Println("0")
	case errors.As(err, &number):
		fmt.Println(unix.ErrnoName(number))
		os.Exit(1)
	default:
		fmt.Println(err)
		os.Exit(1)
	}
}

// batch does each line of standard input, an operation and its arguments, in a
// process of its own and prints one line of answer for each.
func batch() {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		out, _ := exec.Command("/proc/self/exe", strings.Fields(lines.Text())...).CombinedOutput()
		answer := strings.Split(strings.TrimSpace(string(out)), "\n")
		fmt.Println(answer[len(answer)-1])
	}
}
