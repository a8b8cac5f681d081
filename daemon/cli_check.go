package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/dunnage-project/dunnage/bpf"
)

// hooksDirs are where podman and CRI-O look for hooks.
var hooksDirs = []string{"/usr/share/containers/oci/hooks.d", "/etc/containers/oci/hooks.d"}

func checkCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "check", Short: "Say whether this host can enforce policies, and what to do if not",
		Long: `Tries what the daemon needs: it loads and attaches every program for a moment,
with nobody confined by it, and looks at the hook and the daemon. The exit
status is 1 if anything is amiss.`,
		Example: "  dunnage check\n  dunnage check -o json", Args: exactArgs(0)}
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		findings := append(bpf.Probe(), checkHooks(hooksDirs)...)
		findings = append(findings, checkDaemon(daemonOf(cmd)))
		bad := 0
		for _, f := range findings {
			if !f.OK {
				bad++
			}
		}
		if *output == "json" {
			if err := printJSON(cmd.OutOrStdout(), findings); err != nil {
				return err
			}
		} else {
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
			for _, f := range findings {
				word := "ok"
				if !f.OK {
					word = "MISSING"
				}
				fmt.Fprintf(w, "%s\t%s\t%s\n", word, f.Name, f.Detail)
				if f.Remedy != "" {
					fmt.Fprintf(w, "\t\thint: %s\n", f.Remedy)
				}
			}
			w.Flush()
		}
		if bad > 0 {
			return fmt.Errorf("%d of %d checks failed", bad, len(findings))
		}
		return nil
	}
	return cmd
}

// checkHooks looks for the hook as podman and CRI-O would: a file whose binary
// is missing is silently ignored by them, a broken file stops every container.
func checkHooks(dirs []string) []bpf.Finding {
	var out []bpf.Finding
	found := false
	for _, dir := range dirs {
		files, _ := filepath.Glob(filepath.Join(dir, "*.json"))
		for _, file := range files {
			f := bpf.Finding{Name: file, OK: true}
			binary, err := hookBinary(file)
			switch {
			case err != nil:
				f.OK, f.Detail, f.Remedy = false, err.Error(), "mend or remove it: with it no container starts"
			case filepath.Base(binary) == "dunnage-hook":
				found = true
				f.Detail = binary
				st, err := os.Stat(binary)
				if err != nil || st.Mode()&0o111 == 0 {
					f.OK, f.Detail, f.Remedy = false, fmt.Sprintf("%s can't be run: %v", binary, err), "install it again: without it the runtimes ignore the file and start containers UNCONFINED"
				}
			default:
				continue
			}
			out = append(out, f)
		}
	}
	if !found {
		out = append(out, bpf.Finding{Name: "hooks.d", Detail: "no file names dunnage-hook",
			Remedy: "install packaging/hooks.d/dunnage.json into " + dirs[0]})
	}
	return out
}

func hookBinary(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var h struct {
		Hook struct {
			Path string `json:"path"`
		} `json:"hook"`
	}
	if err := json.Unmarshal(data, &h); err != nil {
		return "", err
	}
	return h.Hook.Path, nil
}

func checkDaemon(c *client) bpf.Finding {
	f := bpf.Finding{Name: "daemon", OK: true, Detail: "answers on " + c.path}
	var lines []psLine
	if err := c.call("GET", "/v1/ps", nil, &lines); err != nil {
		f.OK, f.Detail, f.Remedy = false, err.Error(), "systemctl start dunnage"
		if errors.Is(err, fs.ErrPermission) {
			f.Remedy = "run the command as root"
		}
	}
	return f
}
