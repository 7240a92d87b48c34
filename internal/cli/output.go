package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/cli/text"
)

// format is the value of -o: empty for people, json or yaml for programs.
type format string

const (
	forPeople format = ""
	asJSON    format = "json"
	asYAML    format = "yaml"
)

// String, Set and Type make it a flag.
func (f *format) String() string { return string(*f) }

// Set refuses formats there are not.
func (f *format) Set(text string) error {
	switch v := format(text); v {
	case forPeople, asJSON, asYAML:
		*f = v
		return nil
	}
	return fmt.Errorf("choose json or yaml")
}

// Type is shown in the help.
func (f *format) Type() string { return "json|yaml" }

func addOutput(cmd *cobra.Command, into *format) {
	cmd.Flags().VarP(into, "output", "o", "print the result as json or yaml")
}

// print writes value in the format asked for, or lets people write it for people.
func (f format) print(w io.Writer, value any, people func(w io.Writer)) error {
	var text []byte
	var err error
	switch f {
	case asJSON:
		text, err = json.MarshalIndent(value, "", "  ")
		text = append(text, '\n')
	case asYAML:
		text, err = yaml.Marshal(value)
	case forPeople:
		people(w)
		return nil
	}
	if err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	_, err = w.Write(text)
	return err
}

// field is a line of details: a name and a value.
type field struct{ name, value string }

// details writes fields below a headline, aligned.
func details(w io.Writer, fields ...field) {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, f := range fields {
		fmt.Fprintf(table, "  %s\t%s\n", f.name, f.value)
	}
	_ = table.Flush() // an error of w shows in the next write
}

// changes sums up steps.
func changes(steps []brokeradmin.Step) string {
	var parts []string
	for _, action := range []brokeradmin.Action{brokeradmin.Created, brokeradmin.Updated, brokeradmin.Deleted} {
		count := 0
		for _, step := range steps {
			if step.Action == action {
				count++
			}
		}
		if count > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count, action))
		}
	}
	if len(parts) == 0 {
		return "none, all was there"
	}
	return text.Plural(len(steps), "object") + ": " + strings.Join(parts, ", ")
}

func joinCIDRs(cidrs []v1alpha1.CIDR, none string) string {
	if len(cidrs) == 0 {
		return none
	}
	texts := make([]string, len(cidrs))
	for i, c := range cidrs {
		texts[i] = string(c)
	}
	return strings.Join(texts, ", ")
}

func joinNamespaces(names []string) string {
	if len(names) == 0 {
		return "all but kube-* and seamark-*"
	}
	return strings.Join(names, ", ")
}

// look is how a command that looks at things prints: the formats of all commands, and wide.
type look struct {
	format
	wide bool
}

// Set takes wide too.
func (l *look) Set(text string) error {
	if text == "wide" {
		l.wide, l.format = true, forPeople
		return nil
	}
	if err := l.format.Set(text); err != nil {
		return fmt.Errorf("choose json, yaml or wide")
	}
	return nil
}

// String and Type are for the help.
func (l *look) String() string {
	if l.wide {
		return "wide"
	}
	return l.format.String()
}

// Type is shown in the help.
func (l *look) Type() string { return "json|yaml|wide" }

func addLook(cmd *cobra.Command, into *look) {
	cmd.Flags().VarP(into, "output", "o", "print as json or yaml, or with more columns (wide)")
}
