//go:build linux

package clusterset_test

import (
	"regexp"
	"strings"
)

var (
	messageOfLine = regexp.MustCompile(`msg=("(?:[^"\\]|\\.)*"|\S*)`)
	serviceOfLine = regexp.MustCompile(`service=\S*`)
	// libraryLine matches a line that a library writes before Seamark's logger is set up.
	libraryLine = regexp.MustCompile(`^maxprocs: `)
)

// maxRepeats is how often a pod may log the same message about the same service. Earlier steps cut
// off, healed and restarted clusters, which is logged, but not in a loop.
const maxRepeats = 10

// logs checks every line of every daemon: it is structured and, once the cluster's id is known,
// names the cluster. No message is repeated many times.
func logs(s *suite) {
	for _, cluster := range s.Clusters() {
		pods := strings.Fields(s.kubectl(cluster, "-n", "seamark-system", "get", "pods", "--field-selector=status.phase=Running", "-o", "name"))
		if len(pods) < 3 {
			s.Errorf("%s has only the pods %v", cluster, pods)
		}
		for _, pod := range pods {
			named, repeats := false, map[string]int{}
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
					s.Errorf("%s %s: the line does not name the cluster: %s", cluster, pod, line)
				}
				named = named || has
				if cluster != s.importer { // which logs at debug level since its upgrade
					repeats[messageOfLine.FindString(line)+" "+serviceOfLine.FindString(line)]++
				}
			}
			if !named {
				s.Errorf("%s %s: no line names the cluster", cluster, pod)
			}
			for message, times := range repeats {
				if times > maxRepeats {
					s.Errorf("%s %s: logged %d times: %s", cluster, pod, times, message)
				}
			}
		}
	}
}
