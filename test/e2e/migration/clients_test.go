//go:build linux

package migration_test

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/seamark-dev/seamark/test/e2e/testenv"
)

// The names of the services. They end in a dot, so that resolvers try no search list.
const (
	webName = "web.shop.svc.clusterset.local."
	dbName  = "db.shop.svc.clusterset.local."
)

// clients are those of all clusters. They run from before the first step to after the last.
type clients struct {
	began   time.Time
	streams []*stream
	steps   []stepTime
}

// stream is one client: it sends one request or lookup after the other.
type stream struct {
	cluster, target string
	stop            func() (testenv.Tally, error)
}

// stepTime is when a step of the move was made.
type stepTime struct {
	name       string
	began, end time.Time
}

// startClients starts four clients in each cluster: for both services, one looks the name up, and
// one sends requests by the name.
func (s *suite) startClients() *clients {
	s.Helper()
	c := &clients{began: time.Now()}
	for _, cluster := range s.Clusters() {
		for _, target := range []string{"dns://" + webName, "dns://" + dbName, "http://" + webName, "http://" + dbName + ":8080"} {
			stop, err := s.CallUntilStopped(s.Context(), cluster, "shop", "client", target, "--interval", "50ms", "--timeout", "5s")
			s.must(err)
			c.streams = append(c.streams, &stream{cluster, target, stop})
		}
	}
	return c
}

// judge stops the clients and fails the test if one of them noticed something.
func (c *clients) judge(s *suite) {
	s.Helper()
	for _, stream := range c.streams {
		tally, err := stream.stop()
		if err != nil {
			s.Error(err)
			continue
		}
		what := fmt.Sprintf("%s %s", stream.cluster, stream.target)
		s.Logf("%s: %d, of which %d failed; longest time between answers %d ms; by answer %v",
			what, tally.Requests, tally.Failed, tally.LongestGap, tally.Clusters)
		if tally.Failed > 0 {
			s.Errorf("%s: %d of %d failed: %v; %s", what, tally.Failed, tally.Requests, tally.Errors, c.when(tally))
		}
		// At least two a second: otherwise zero failures say little.
		if least := int(2 * time.Since(c.began).Seconds()); tally.Requests < least {
			s.Errorf("%s: only %d, want %d", what, tally.Requests, least)
		}
	}
}

// when returns in which steps requests failed, and how long after the step began.
func (c *clients) when(tally testenv.Tally) string {
	var out []string
	for _, failure := range tally.Failures(c.began) {
		at, step := c.began.Add(failure), ""
		for _, s := range c.steps {
			if !at.Before(s.began) && !at.After(s.end) {
				step = fmt.Sprintf("%s after %s in %s", at.Format("15:04:05.000"), at.Sub(s.began).Round(10*time.Millisecond), s.name)
			}
		}
		out = append(out, cmp.Or(step, at.Format("15:04:05.000")+" between steps"))
	}
	const most = 10
	if len(out) > most {
		out = append(out[:most], fmt.Sprintf("and %d more", len(out)-most))
	}
	return strings.Join(out, ", ")
}
