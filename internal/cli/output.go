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

// format is the value of -o: json or yaml, or empty for text.
type format string

const (
	asText format = ""
	asJSON format = "json"
	asYAML format = "yaml"
)

// String, Set and Type implement pflag.Value.
func (f *format) String() string { return string(*f) }

// Set fails on formats that do not exist.
func (f *format) Set(text string) error {
	switch v := format(text); v {
	case asText, asJSON, asYAML:
		*f = v
		return nil
	}
	return fmt.Errorf("choose json or yaml")
}

// Type is shown in the help.
func (f *format) Type() string { return "json|yaml" }

func addOutput(cmd *cobra.Command, target *format) {
	cmd.Flags().VarP(target, "output", "o", "print the result as json or yaml")
}

// print writes value in the chosen format; printText writes the same as text.
func (f format) print(w io.Writer, value any, printText func(w io.Writer)) error {
	var text []byte
	var err error
	switch f {
	case asJSON:
		text, err = json.MarshalIndent(value, "", "  ")
		text = append(text, '\n')
	case asYAML:
		text, err = yaml.Marshal(value)
	case asText:
		printText(w)
		return nil
	}
	if err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	_, err = w.Write(text)
	return err
}

// field is a line of details.
type field struct{ name, value string }

// details writes fields below a headline, aligned.
func details(w io.Writer, fields ...field) {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, f := range fields {
		fmt.Fprintf(table, "  %s\t%s\n", f.name, f.value)
	}
	_ = table.Flush() // an error of w shows in the next write
}

// changes summarizes steps.
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
		return "none, everything exists already"
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

// wideFormat is a format that can also be wide: text with more columns.
type wideFormat struct {
	format
	wide bool
}

// Set accepts wide too.
func (f *wideFormat) Set(text string) error {
	if text == "wide" {
		f.wide, f.format = true, asText
		return nil
	}
	if err := f.format.Set(text); err != nil {
		return fmt.Errorf("choose json, yaml or wide")
	}
	return nil
}

// String returns the value of the flag.
func (f *wideFormat) String() string {
	if f.wide {
		return "wide"
	}
	return f.format.String()
}

// Type is shown in the help.
func (f *wideFormat) Type() string { return "json|yaml|wide" }

func addWideOutput(cmd *cobra.Command, target *wideFormat) {
	cmd.Flags().VarP(target, "output", "o", "print as json or yaml, or with more columns (wide)")
}
