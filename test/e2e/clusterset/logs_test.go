//go:build linux

package clusterset_test

import (
	"regexp"
	"strings"
)

var (
	messageOfLine = regexp.MustCompile(`msg=("(?:[^"\\]|\\.)*"|\S*)`)
	serviceOfLine = regexp.MustCompile(`service=\S*`)
	// A line of a library, before ours begin.
	libraryLine = regexp.MustCompile(`^maxprocs: `)
)

// maxRepeats is how often a pod may say the same about the same service. Clusters were cut off,
// healed and restarted before: that is told, but not in a loop.
const maxRepeats = 10

// Every line of every daemon is structured and names the cluster from the moment it is known, and
// nothing is said again and again.
func logs(s *suite) {
	for _, cluster := range s.Clusters() {
		pods := strings.Fields(s.kubectl(cluster, "-n", "seamark-system", "get", "pods", "--field-selector=status.phase=Running", "-o", "name"))
		if len(pods) < 3 {
			s.Errorf("%s has only the pods %v", cluster, pods)
		}
		for _, pod := range pods {
			named, said := false, map[string]int{}
			for line := range strings.Lines(s.kubectl(cluster, "-n", "seamark-system", "logs", pod)) {
				line = strings.TrimSpace(line)
				if libraryLine.MatchString(line) && !named {
					continue
				}
				if !strings.HasPrefix(line, "time=") || !messageOfLine.MatchString(line) {
					s.Errorf("%s %s: not structured: %s", cluster, pod, line)
				}
				has := strings.Contains(line+" ", " cluster="+cluster+" ")
				if named && !has {
					s.Errorf("%s %s: whose is it? %s", cluster, pod, line)
				}
				named = named || has
				if cluster != s.importer { // which says everything since its upgrade
					said[messageOfLine.FindString(line)+" "+serviceOfLine.FindString(line)]++
				}
			}
			if !named {
				s.Errorf("%s %s: no line names the cluster", cluster, pod)
			}
			for what, times := range said {
				if times > maxRepeats {
					s.Errorf("%s %s: %d times: %s", cluster, pod, times, what)
				}
			}
		}
	}
}
