//go:build manual

// The manuals and completions of packages, made from the commands themselves:
// `go run -tags manual ./daemon manual DIR` (packaging/build).
package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/cpuguy83/go-md2man/v2/md2man"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func init() {
	extraCommands = append(extraCommands, &cobra.Command{Use: "manual DIR", Hidden: true, Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return writeManuals(cmd.Root(), args[0]) }})
}

func writeManuals(root *cobra.Command, dir string) error {
	for _, sub := range []string{"man1", "man5", "completions"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	root.DisableAutoGenTag = true
	root.InitDefaultCompletionCmd()
	if err := doc.GenManTree(root, &doc.GenManHeader{Title: "DUNNAGE", Section: "1", Source: "Dunnage " + version, Manual: "Dunnage"}, filepath.Join(dir, "man1")); err != nil {
		return err
	}
	for page, what := range map[string]string{"policy": "the policy language", "config": "the node's configuration"} {
		text, err := os.ReadFile(filepath.Join("docs", page+".md"))
		if err != nil {
			return err
		}
		head := "% DUNNAGE-" + strings.ToUpper(page) + " 5 \"\" \"Dunnage " + version + "\"\n# NAME\ndunnage-" + page + " - " + what + "\n\n"
		if err := os.WriteFile(filepath.Join(dir, "man5", "dunnage-"+page+".5"), md2man.Render([]byte(head+listed(string(text)))), 0o644); err != nil {
			return err
		}
	}
	if err := root.GenBashCompletionFileV2(filepath.Join(dir, "completions", "dunnage.bash"), true); err != nil {
		return err
	}
	if err := root.GenFishCompletionFile(filepath.Join(dir, "completions", "dunnage.fish"), true); err != nil {
		return err
	}
	return root.GenZshCompletionFile(filepath.Join(dir, "completions", "_dunnage"))
}

// listed is a text with its tables as lists: cells that fit a page of the web are
// too wide for a terminal.
func listed(text string) string {
	var out []string
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		head := i+1 < len(lines) && strings.HasPrefix(lines[i+1], "| ---")
		switch {
		case strings.HasPrefix(line, "| ---") || strings.HasPrefix(line, "| ") && head:
		case strings.HasPrefix(line, "| "):
			first, rest, _ := strings.Cut(strings.Trim(line, "| "), " | ")
			out = append(out, first, ": "+strings.ReplaceAll(rest, " | ", "; "), "")
		default:
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}
