package policy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dunnage-project/dunnage/policy"
)

// Rules for some containers only can't come in by include: they would be lost.
func TestIncludeRefusesVariants(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"b.yaml": "policies: [{executable: \"filepath = /bin/web | container = a:*:c\", can_access_dirs: [\"/srv:read\"]}]\n",
		"n.yaml": "apiVersion: dunnage.io/v1\nkind: Policy\nmetadata: {name: n}\nspec: {default: allow, include: [b]}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	set, err := policy.LoadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := set.Lookup("n"); err == nil || !strings.Contains(err.Error(), "for some containers only") {
		t.Errorf("included: %v", err)
	}
	b, err := set.Lookup("b")
	if err != nil {
		t.Fatal(err)
	}
	text := string(policy.Convert(b))
	for _, want := range []string{"# For the containers that no pattern below matches.\napiVersion", "---\n# For the containers a:*:c (namespace:pod:container).\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("converted, it lacks %q:\n%s", want, text)
		}
	}
}
