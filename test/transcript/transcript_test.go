package transcript

import (
	"regexp"
	"testing"
)

func TestReplay(t *testing.T) {
	const golden = `# A comment.
$ seamark ok
old output

$ seamark fail DIR
`
	const want = `# A comment.
$ seamark ok
https://SERVER at TIME

$ seamark fail DIR
no DIR
[exit 1]

`
	var ran []string
	got := replay(golden, func(line string) Result {
		ran = append(ran, line)
		if line == "ok" {
			return Result{Stdout: "https://127.0.0.1:1234 at 2006-01-02T15:04:05Z\n"}
		}
		return Result{Stderr: "no /tmp/x\n", Code: 1}
	}, append(Common[:2:2], Replacement{regexp.MustCompile(`/tmp/\w+`), "DIR"}))
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	if len(ran) != 2 || ran[1] != "fail DIR" {
		t.Errorf("ran %q", ran)
	}
}
