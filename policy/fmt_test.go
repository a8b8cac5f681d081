package policy_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/dunnage-project/dunnage/policy"
)

// Formatting keeps comments and meaning, and a second time changes nothing.
func TestFormat(t *testing.T) {
	files, err := filepath.Glob(blocks + "/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		once, diags := policy.Format(file, data)
		if diags.Err() != nil {
			t.Fatal(diags.Err())
		}
		twice, diags := policy.Format(file, once)
		if diags.Err() != nil || !bytes.Equal(once, twice) {
			t.Errorf("%s changes again: %v\n%s\n%s", file, diags, once, twice)
		}
		if bytes.Count(once, []byte("#")) != bytes.Count(data, []byte("#")) {
			t.Errorf("%s loses a comment:\n%s", file, once)
		}
		before, _ := policy.ParseFile(file, data)
		after, _ := policy.ParseFile(file, once)
		if len(before) != len(after) {
			t.Fatalf("%s: %d policies, formatted %d", file, len(before), len(after))
		}
		for i := range before {
			if a, b := policy.Convert(before[i]), policy.Convert(after[i]); !bytes.Equal(a, b) {
				t.Errorf("%s means something else:\n%s\n%s", file, a, b)
			}
		}
	}
	far := "# of the file\n\n" + postgres + "\n# at the end\n"
	if out, _ := policy.Format("t.yaml", []byte(far)); !bytes.Contains(out, []byte("# of the file")) || !bytes.Contains(out, []byte("# at the end")) {
		t.Errorf("a comment apart is lost:\n%s", out)
	}
	if out, diags := policy.Format("t.yaml", []byte("kind: Policy")); out != nil || diags.Err() == nil {
		t.Error("a file with errors is formatted")
	}
}
