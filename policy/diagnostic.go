package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Diagnostic is one thing found in a policy file.
type Diagnostic struct {
	Warning bool // false: an error, the policy can't be used
	Pos     Position
	Message string // what is wrong, with the offending text
	Hint    string // what to do
}

// String is one or two lines: file:line:column: error: …, and hint: ….
func (d Diagnostic) String() string {
	word := "error"
	if d.Warning {
		word = "warning"
	}
	s := fmt.Sprintf("%s: %s: %s", d.Pos, word, d.Message)
	if d.Hint != "" {
		s += "\n  hint: " + d.Hint
	}
	return s
}

// Diagnostics is everything found in one file, in the order of its lines.
type Diagnostics []Diagnostic

// Err is the errors in one, or nil if there are only warnings.
func (ds Diagnostics) Err() error {
	var lines []string
	for _, d := range ds {
		if !d.Warning {
			lines = append(lines, d.String())
		}
	}
	if lines == nil {
		return nil
	}
	return fmt.Errorf("%s", strings.Join(lines, "\n"))
}

// near is the candidate that a mistyped word is most like, or "".
func near(word string, candidates []string) string {
	best, distance := "", 1+len(word)/3
	for _, c := range candidates {
		if d := editDistance(strings.ToLower(word), strings.ToLower(c)); d <= distance && (best == "" || d < distance) {
			best, distance = c, d
		}
	}
	return best
}

func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			last, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, last+cost)
		}
	}
	return row[len(b)]
}

// choices is the words for a hint.
func choices(words []string) string {
	words = slices.Clone(words)
	if n := len(words); n > 1 {
		return strings.Join(words[:n-1], ", ") + " or " + words[n-1]
	}
	return strings.Join(words, "")
}
