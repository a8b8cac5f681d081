package coherence

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/dunnage-project/dunnage/policy"
)

const (
	policiesDir = "/etc/dunnage/policies.d"
	policyCount = 16
	versions    = 4 // of each policy, for reloads
)

// Numbers of the policies that are not random: noisePolicy, and that of a kept
// program, keptText.
const (
	noisePolicyIndex = -1
	keptPolicy       = -2
)

var keptText string

func policyName(i int) string {
	switch i {
	case noisePolicyIndex:
		return "coherence-noise"
	case keptPolicy:
		return "coherence-kept"
	}
	return fmt.Sprintf("coherence-%d", i)
}

func policyFile(i int) string { return filepath.Join(policiesDir, policyName(i)+".yaml") }

// policyText is version v of policy i: always the same. The names in it are those
// that programs use.
func policyText(i, v int) string {
	switch i {
	case noisePolicyIndex:
		return noisePolicy
	case keptPolicy:
		return keptText
	}
	r := rand.New(rand.NewPCG(uint64(i), uint64(v)))
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: dunnage.io/v1\nkind: Policy\nmetadata: {name: %s}\nspec:\n", policyName(i))
	fmt.Fprintf(&b, "  default: %s\n", pick(r, []string{"allow", "deny"}))
	if i%4 != 3 {
		b.WriteString("  mounts: allow\n")
	}
	b.WriteString("  rules:\n  - {effect: allow, paths: [\"/bin/**\", \"/proc/**\", \"/sys/**\", \"/old/proc/**\"], access: [all]}\n")
	for n := 4 + r.IntN(6); n > 0; n-- {
		path := pick(r, []string{"/w", "/t", "/o", "/b", "/*", "/?", "/old/**", "/{w,t}", "/{o,b}"})
		if r.IntN(4) == 0 {
			path += strings.Repeat("/a/b", 1+r.IntN(5)) // into the deep chain
		}
		for k := 1 + r.IntN(4); k > 0; k-- {
			path += "/" + pick(r, []string{"a", "a", "b", "b", "x", "y", "*", "[ax]", "**"})
		}
		effect, who := pick(r, []string{"allow", "deny", "deny"}), ""
		if r.IntN(5) == 0 {
			who = `, executables: ["/bin/actor"]`
		}
		if r.IntN(3) == 0 {
			who += ", exact: true"
		}
		fmt.Fprintf(&b, "  - {effect: %s, paths: [%q], access: [%s]%s}\n", effect, path,
			pick(r, []string{"read", "write", "read, write", "all", "read, modify"}), who)
	}
	return b.String()
}

func parsePolicy(text string) (*policy.Policy, error) {
	policies, diags := policy.ParseFile("policy.yaml", []byte(text))
	if err := diags.Err(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, text)
	}
	return policies[0], nil
}

func writePolicy(i, v int) error {
	return os.WriteFile(policyFile(i), []byte(policyText(i, v)), 0o644)
}
