package dns_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark-dev/seamark/internal/sandbox/kubeparts"
	"github.com/seamark-dev/seamark/test/harness"
)

// The answers in docs/dns.md are those of a server with the objects that the page describes.
func TestDocsShowRealAnswers(t *testing.T) {
	cp := cluster(t)
	c := clientOf(t, cp)
	const ns = "shop"
	web := clusterSetIP(ns, "web", []string{"243.0.0.1", "fd00:243::1"}, port("http", 80), port("https", 443))
	db, legacy := headless(ns, "db", port("pg", 5432)), classic(ns, "legacy", port("http", 80))
	create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, web, db, legacy,
		imported(db, localCluster, "1", endpoint("10.1.0.10", named("db-0"))),
		imported(db, "west", "1", endpoint("10.2.0.10", named("db-0")), endpoint("10.2.0.11")),
		imported(legacy, localCluster, "1", endpoint("10.96.0.20")), imported(legacy, "west", "1", endpoint("10.97.0.20")))
	s := start(t, cp)
	shown := 0
	for question, want := range documentedAnswers(t) {
		shown++
		harness.Eventually(t, "dig "+question, func() error {
			fields := strings.Fields(question)
			name, qtype := fields[0], fields[1]
			if name == "-x" {
				name, _ = dns.ReverseAddr(fields[1])
				qtype = "PTR"
			}
			reply, err := s.exchange("udp", newQuery(name, dns.StringToType[qtype], withEDNS))
			if err != nil {
				return err
			}
			if got := documentedForm(reply); !slices.Equal(got, want) {
				return fmt.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			return nil
		})
	}
	if shown < 15 {
		t.Errorf("only %d answers are shown", shown)
	}
}

// documentedForm returns a reply in the form of the page: the status unless it is NOERROR, and all
// records but OPT.
func documentedForm(m *dns.Msg) []string {
	var out []string
	if m.Rcode != success {
		out = append(out, "status: "+dns.RcodeToString[m.Rcode])
	}
	for _, rrs := range [][]dns.RR{m.Answer, m.Ns, m.Extra} {
		for _, text := range recordTexts(rrs) {
			fields := strings.Fields(text)
			if fields[3] == "SOA" {
				fields[6] = "1790000000" // the time of the last change
			}
			out = append(out, strings.Join(fields, " "))
		}
	}
	slices.Sort(out)
	return out
}

// dnsPage returns the text of docs/dns.md.
func dnsPage(t *testing.T) string {
	t.Helper()
	root, err := kubeparts.Root()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "dns.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// documentedAnswers returns the queries and answers of the page's blocks: a line "$ dig … name
// type" and the lines after it.
func documentedAnswers(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	question, inBlock := "", false
	for line := range strings.Lines(dnsPage(t)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "```"):
			inBlock, question = line == "```console", ""
		case !inBlock:
		case strings.HasPrefix(line, "$ dig "):
			question = strings.TrimPrefix(line, "$ dig ")
			out[question] = nil
		case question != "" && line != "":
			out[question] = append(out[question], strings.Join(strings.Fields(line), " "))
		}
	}
	for q := range out {
		slices.Sort(out[q])
	}
	return out
}

// Every test that docs/dns.md names is in this package.
func TestDocsNameRealTests(t *testing.T) {
	var source strings.Builder
	var files []string
	for _, dir := range []string{".", "../dataplane", "../../e2e/clusterset"} {
		found, _ := filepath.Glob(filepath.Join(dir, "*_test.go"))
		files = append(files, found...)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(text)
	}
	named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(dnsPage(t), -1)
	for _, m := range named {
		if !strings.Contains(source.String(), "\nfunc "+m[1]+"(") {
			t.Errorf("%s does not exist", m[1])
		}
	}
	if len(named) < 30 {
		t.Errorf("only %d tests are named", len(named))
	}
}
