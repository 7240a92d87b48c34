package doctor

import (
	"fmt"
	"io"
	"strings"

	"github.com/seamark-dev/seamark/internal/cli/explain"
)

// Status is the outcome of a check.
type Status string

const (
	// Pass means that nothing is wrong.
	Pass Status = "pass"
	// Warn means that it works, but needs attention.
	Warn Status = "warn"
	// Fail means that something cannot work.
	Fail Status = "fail"
	// Skip means that it was not checked; the detail is why.
	Skip Status = "skip"
)

// Check is one check of the table.
type Check struct {
	// Code names it, here and in docs/troubleshooting.md.
	Code  string
	Title string
	run   func(f *Facts) []Result
}

// Result is what a check found, in one place.
type Result struct {
	Code   string `json:"code"`
	Title  string `json:"title"`
	Status Status `json:"status"`
	// Where is a cluster's id, or "broker".
	Where  string `json:"where"`
	Detail string `json:"detail"`
	// Fix is what to do; empty when there is nothing to do.
	Fix string `json:"fix,omitempty"`
}

// Report is the result of all checks.
type Report struct {
	Results []Result `json:"results"`
	Passed  int      `json:"passed"`
	Warned  int      `json:"warned"`
	Failed  int      `json:"failed"`
	Skipped int      `json:"skipped"`
}

// Checks are all checks, in the order in which they are shown: later ones depend on earlier ones.
var Checks = []Check{
	{"api-server", "the API server answers and is new enough", checkAPIServer},
	{"permissions", "you may read what the checks need", checkPermissions},
	{"crds", "the CRDs are installed and serve the versions that are needed", checkCRDs},
	{"membership", "the cluster is a member of a clusterset", checkMembership},
	{"broker", "the broker answers the member", checkBroker},
	{"broker-permissions", "the member has its permissions on the broker", checkBrokerPermissions},
	{"broker-fairness", "the members have a share of the broker's API server", checkFairness},
	{"registration", "the broker has the member's Cluster object", checkRegistration},
	{"clocks", "the clocks agree", checkClocks},
	{"heartbeat", "the member's heartbeat reaches the broker", checkHeartbeat},
	{"other-members", "the other members are alive", checkOthers},
	{"agent", "seamark-agent runs", checkAgent},
	{"agent-versions", "the members run the same version", checkVersions},
	{"grants", "the members publish only what the broker's admin grants them", checkGrants},
	{"exports", "every export is published", checkExports},
	{"withdrawal-held", "no member holds the withdrawal of services", checkHeld},
	{"dns-server", "seamark-dns runs", checkDNSServer},
	{"dns-forward", "the cluster's DNS forwards the zone of the clusterset", checkForward},
	{"dns-answer", "DNS answers for the clusterset", checkAnswer},
	{"address-ranges", "the ranges of the clusters' pods and Services do not overlap", checkRanges},
	{"clusterset-ip-ranges", "the ranges of clusterset IPs overlap no others", checkClusterSetIPRanges},
	{"clusterset-ip-pool", "clusterset IPs are left", checkPool},
	{"data-plane", "the data plane is programmed", checkDataPlane},
	{"beacons", "the cluster has beacons, and those of other clusters answer", checkBeacons},
	{"remote-pod", "pods of other clusters can be reached", checkRemotePod},
}

// Examine runs all checks.
func Examine(f Facts) Report {
	r := Report{Results: []Result{}}
	for _, check := range Checks {
		for _, result := range check.run(&f) {
			result.Code, result.Title = check.Code, check.Title
			r.Results = append(r.Results, result)
			switch result.Status {
			case Pass:
				r.Passed++
			case Warn:
				r.Warned++
			case Fail:
				r.Failed++
			case Skip:
				r.Skipped++
			}
		}
	}
	return r
}

// each runs a check in every cluster that could be read.
func each(f *Facts, check func(c *Cluster) Result) []Result {
	var out []Result
	for i := range f.Clusters {
		c := &f.Clusters[i]
		if c.Problem != "" {
			continue
		}
		r := check(c)
		if r.Status == "" {
			continue // does not apply
		}
		r.Where = c.ID
		out = append(out, r)
	}
	return out
}

func pass(format string, args ...any) Result {
	return Result{Status: Pass, Detail: fmt.Sprintf(format, args...)}
}
func warn(fix, format string, args ...any) Result {
	return Result{Status: Warn, Detail: fmt.Sprintf(format, args...), Fix: fix}
}
func fail(fix, format string, args ...any) Result {
	return Result{Status: Fail, Detail: fmt.Sprintf(format, args...), Fix: fix}
}
func skip(format string, args ...any) Result {
	return Result{Status: Skip, Detail: fmt.Sprintf(format, args...)}
}

func (r Result) at(where string) Result {
	r.Where = where
	return r
}

// kubectl returns the command line of kubectl for a cluster.
func (c *Cluster) kubectl(format string, args ...any) string {
	flag := ""
	if c.Context != "" {
		flag = " --context " + c.Context
	}
	return "kubectl" + flag + " " + fmt.Sprintf(format, args...)
}

// Write writes a report as text. With problemsOnly, checks that passed or were skipped are left
// out.
func Write(w io.Writer, r Report, problemsOnly bool, paint explain.Paint) {
	severity := map[Status]explain.Severity{Pass: "good", Warn: explain.Warn, Fail: explain.Fail, Skip: explain.Note}
	for _, result := range r.Results {
		if problemsOnly && (result.Status == Pass || result.Status == Skip) {
			continue
		}
		status := paint(severity[result.Status], strings.ToUpper(string(result.Status)))
		fmt.Fprintf(w, "%s  %-20s %s: %s\n", status, result.Code, result.Where, result.Detail)
		if result.Fix != "" {
			fmt.Fprintf(w, "      do: %s\n", result.Fix)
		}
	}
	fmt.Fprintf(w, "\n%d passed, %d warned, %d failed, %d skipped.\n", r.Passed, r.Warned, r.Failed, r.Skipped)
	if r.Warned+r.Failed > 0 {
		fmt.Fprintln(w, "Each code has a section in docs/troubleshooting.md.")
	}
}
