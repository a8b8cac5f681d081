package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// What Lookup's errors wrap.
var (
	ErrUnknown = errors.New("unknown policy")
	ErrInvalid = errors.New("invalid policy")
)

// Set is the policies of one folder. A file with an error hides none of the
// others: its policies are known as invalid.
type Set struct {
	policies map[string]*Policy
	invalid  map[string]error // by policy name, as far as one can tell, and by file name without .yaml
	problems Diagnostics
}

// LoadDir reads every *.yaml and *.yml of a folder. A folder that does not exist
// gives an empty set. Error: only if the folder can't be read.
func LoadDir(dir string) (*Set, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the policies: %w", err)
	}
	var files []string
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); !e.IsDir() && (ext == ".yaml" || ext == ".yml") && e.Name()[0] != '.' {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	return LoadFiles(files...), nil
}

// LoadFiles reads the given files.
func LoadFiles(files ...string) *Set {
	s := &Set{policies: map[string]*Policy{}, invalid: map[string]error{}}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			s.reject(file, Diagnostics{{Pos: Position{file, 1, 1}, Message: err.Error(), Hint: "make the file readable for the daemon"}})
			continue
		}
		s.add(file, data)
	}
	s.resolve()
	return s
}

func (s *Set) add(file string, data []byte) {
	policies, diags := ParseFile(file, data)
	if diags.Err() != nil {
		s.reject(file, diags)
		for _, name := range namesIn(data) {
			s.invalid[name] = diags.Err()
		}
		return
	}
	s.problems = append(s.problems, diags...)
	for _, p := range policies {
		if other := s.policies[p.Name]; other != nil {
			d := Diagnostic{Pos: p.Pos, Message: fmt.Sprintf("policy %q is defined twice: also at %s", p.Name, other.Pos), Hint: "rename one of them"}
			s.problems = append(s.problems, d)
			s.invalid[p.Name] = Diagnostics{d}.Err()
			continue
		}
		s.policies[p.Name] = p
	}
}

func (s *Set) reject(file string, diags Diagnostics) {
	s.problems = append(s.problems, diags...)
	s.invalid[strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))] = diags.Err()
}

// namesIn guesses the names of policies in a text that can't be read: enough to
// answer "invalid" and not "unknown".
func namesIn(data []byte) []string {
	var out []string
	for _, line := range strings.Split(string(data), "\n") {
		if i := strings.Index(line, "name:"); i >= 0 {
			name := strings.Trim(strings.SplitN(line[i+5:], ",", 2)[0], " \t\r\"'{}")
			if ValidName(name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// resolve puts the rules of included policies in front of the including ones'.
func (s *Set) resolve() {
	const busy, done = 1, 2
	mark := map[string]int{}
	var visit func(name string) error
	visit = func(name string) error {
		p := s.policies[name]
		if mark[name] == done {
			return s.invalid[name]
		}
		mark[name] = busy
		defer func() { mark[name] = done }()
		var rules []Rule
		for _, in := range p.Include {
			var d Diagnostic
			switch {
			case mark[in.Name] == busy:
				d = Diagnostic{Pos: in.Pos, Message: fmt.Sprintf("policy %q includes itself by way of %q", name, in.Name), Hint: "break the circle"}
			case s.policies[in.Name] == nil:
				_, err := s.Lookup(in.Name)
				d = Diagnostic{Pos: in.Pos, Message: fmt.Sprintf("included policy: %v", err), Hint: "put the block's file beside this one"}
			case visit(in.Name) != nil:
				d = Diagnostic{Pos: in.Pos, Message: fmt.Sprintf("included policy %q is invalid", in.Name), Hint: "mend that one first"}
			case s.policies[in.Name].And != nil:
				d = Diagnostic{Pos: in.Pos, Message: fmt.Sprintf("included policy %q is two layers (its can_run is below a protected directory)", in.Name), Hint: "name both policies in the annotation"}
			case len(s.policies[in.Name].Variants) > 0:
				d = Diagnostic{Pos: in.Pos, Message: fmt.Sprintf("included policy %q has rules for some containers only (`container =`)", in.Name), Hint: "name both policies in the annotation, or include what `dunnage policy convert` makes of it"}
			default:
				rules = append(rules, s.policies[in.Name].Rules...)
				continue
			}
			s.problems = append(s.problems, d)
			s.invalid[name] = Diagnostics{d}.Err()
			return s.invalid[name]
		}
		p.Rules = append(rules, p.Rules...)
		p.Include = nil
		return nil
	}
	for _, name := range s.Names() {
		if mark[name] == 0 {
			_ = visit(name) // kept in invalid
		}
	}
	for name := range s.invalid {
		delete(s.policies, name)
	}
}

// Lookup returns a policy by name. Errors: ErrUnknown, with the nearest name;
// ErrInvalid, with the first diagnostic.
func (s *Set) Lookup(name string) (*Policy, error) {
	if p := s.policies[name]; p != nil {
		return p, nil
	}
	if err := s.invalid[name]; err != nil {
		first, _, _ := strings.Cut(err.Error(), "\n")
		return nil, fmt.Errorf("%w %q: %s", ErrInvalid, name, first)
	}
	if other := near(name, s.Names()); other != "" {
		return nil, fmt.Errorf("%w %q: did you mean %q?", ErrUnknown, name, other)
	}
	return nil, fmt.Errorf("%w %q", ErrUnknown, name)
}

// Names is the names of all valid policies, sorted.
func (s *Set) Names() []string {
	var out []string
	for name := range s.policies {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// Problems is everything that was found in the files.
func (s *Set) Problems() Diagnostics { return s.problems }
