// Each promise in SECURITY.md names a test, and that test exists.

package imports

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestPromisesHaveTests(t *testing.T) {
	const root = "../.."
	exists := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		data, err := os.ReadFile(path)
		for _, m := range declared.FindAllSubmatch(data, -1) {
			exists[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "SECURITY.md"))
	if err != nil {
		t.Fatal(err)
	}
	promises := 0
	named := regexp.MustCompile(`\bTest\w+`)
	for _, line := range strings.Split(string(text), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 4 || strings.TrimSpace(cells[1]) == "promise" || strings.Contains(line, "---") {
			continue
		}
		promises++
		tests := named.FindAllString(cells[2], -1)
		if len(tests) == 0 {
			t.Errorf("no test is named for: %s", strings.TrimSpace(cells[1]))
		}
		for _, name := range tests {
			if !exists[name] {
				t.Errorf("%s does not exist, named for: %s", name, strings.TrimSpace(cells[1]))
			}
		}
	}
	if promises < 10 {
		t.Errorf("only %d promises were found: has the table another form now?", promises)
	}
}
