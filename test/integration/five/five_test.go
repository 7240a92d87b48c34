// Package five_test exports one service from five clusters that disagree about it, for each kind of
// conflict.
package five_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

const ns = "conflicts"

// Three exporters agree and the two newest ones differ. The conflict is reported on the exports of
// all five clusters. Its message names the cluster with precedence and the two that differ, and no
// other. It is cleared when the two change their Services, or unexport.
func TestFiveExporters(t *testing.T) {
	cps := harness.Clusters(t, 5)
	f := fleet.Started(t, cps[0], cps, fleet.Options{})
	agreeing, differing := f.Members[:3], f.Members[3:]
	for i, m := range f.Members {
		m.Namespace(t, ns)
		if i == 1 || i == 3 {
			awaitNextSecond() // the first export is the oldest, and the last two are the newest
		}
		for reason, conflict := range fleet.Conflicts {
			svc := fleet.NewService(ns, serviceFor(reason))
			if i >= 3 && conflict.Service != nil {
				conflict.Service(svc)
			}
			m.Serve(t, svc, fmt.Sprintf("10.%d.0.1", i+1))
			m.Export(t, ns, svc.Name, func(e *mcsv1beta1.ServiceExport) {
				if i >= 3 && conflict.Export != nil {
					conflict.Export(e)
				}
			})
		}
	}
	for reason := range fleet.Conflicts {
		for _, m := range f.Members {
			awaitConflict(t, m, reason, f.Members[0], differing, agreeing[1:])
		}
	}
	for reason, conflict := range fleet.Conflicts {
		for _, m := range differing {
			if conflict.Resolve == nil {
				m.Unexport(t, ns, serviceFor(reason))
				continue
			}
			fleet.Update(t, m, ns, serviceFor(reason), &corev1.Service{}, conflict.Resolve)
		}
	}
	for reason, conflict := range fleet.Conflicts {
		exporters := f.Members
		if conflict.Resolve == nil {
			exporters = agreeing
		}
		for _, m := range exporters {
			m.Awaits(t, ns, serviceFor(reason), mcsv1beta1.ServiceExportConditionConflict, metav1.ConditionFalse,
				mcsv1beta1.ServiceExportReasonNoConflicts)
		}
	}
}

// awaitConflict waits until the conflict is reported on a member's export with a message that names
// the cluster with precedence and those that differ, and none of those that agree.
func awaitConflict(
	t *testing.T, m *fleet.Member, reason mcsv1beta1.ServiceExportConditionReason, winner *fleet.Member, differing, agreeing []*fleet.Member,
) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("%s on %s", reason, m.ID), func() error {
		c, err := m.Condition(ns, serviceFor(reason), mcsv1beta1.ServiceExportConditionConflict)
		if err != nil {
			return err
		}
		if c.Status != metav1.ConditionTrue || c.Reason != string(reason) {
			return fmt.Errorf("it is %s/%s: %s", c.Status, c.Reason, c.Message)
		}
		for _, named := range append([]*fleet.Member{winner}, differing...) {
			if !strings.Contains(c.Message, named.ID) {
				return fmt.Errorf("%s is not named: %s", named.ID, c.Message)
			}
		}
		for _, other := range agreeing {
			if strings.Contains(c.Message, other.ID) {
				return fmt.Errorf("%s is named, but agrees: %s", other.ID, c.Message)
			}
		}
		return nil
	})
}

// serviceFor returns the name of the service whose exports have this conflict.
func serviceFor(reason mcsv1beta1.ServiceExportConditionReason) string {
	return strings.ToLower(string(reason))
}

// awaitNextSecond waits for the next whole second: creation timestamps have no fractions.
func awaitNextSecond() {
	now := time.Now()
	time.Sleep(now.Truncate(time.Second).Add(time.Second + 50*time.Millisecond).Sub(now))
}
