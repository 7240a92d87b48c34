package brokeradmin

import (
	"context"
	"errors"
	"testing"
)

// A cluster that joined a moment ago, or whose API server has just started, can be left and joined all the same: what is refused for
// want of a policy's parameter is tried again, and nothing else is.
func TestWhilePoliciesSettle(t *testing.T) {
	unsettled := errors.New(`clusterproperties.about.k8s.io "clusterset.k8s.io" is forbidden: ValidatingAdmissionPolicy 'seamark-identity-locked' denied request: failed to configure policy: failed to find resource referenced by paramKind: 'about.k8s.io/v1beta1, Kind=ClusterProperty'`)
	denied := errors.New(`is forbidden: ValidatingAdmissionPolicy 'seamark-identity-locked' denied request: the identity is locked`)
	for name, c := range map[string]struct {
		answers []error
		want    error
	}{
		"settles":        {[]error{unsettled, unsettled, nil}, nil},
		"denied":         {[]error{denied}, denied},
		"denied at last": {[]error{unsettled, denied}, denied},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			err := retryUntilPoliciesReady(context.Background(), func(context.Context) error {
				asked++
				return c.answers[asked-1]
			})
			if !errors.Is(err, c.want) || asked != len(c.answers) {
				t.Errorf("%v after %d of %d answers, want %v", err, asked, len(c.answers), c.want)
			}
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := retryUntilPoliciesReady(ctx, func(context.Context) error { cancel(); return unsettled }); !errors.Is(err, unsettled) {
		t.Errorf("an interrupted wait must tell what it waited for: %v", err)
	}
}
