package brokeradmin

import (
	"context"
	"errors"
	"testing"
)

// Right after a join, or after the API server has started, policies deny requests because their
// parameter kind is not known yet. Only such denials are retried.
func TestRetryUntilPoliciesReady(t *testing.T) {
	notReady := errors.New(`clusterproperties.about.k8s.io "clusterset.k8s.io" is forbidden: ValidatingAdmissionPolicy ` +
		`'seamark-identity-locked' denied request: failed to configure policy: failed to find resource referenced by paramKind: ` +
		`'about.k8s.io/v1beta1, Kind=ClusterProperty'`)
	denied := errors.New(`is forbidden: ValidatingAdmissionPolicy 'seamark-identity-locked' denied request: the identity is locked`)
	for name, c := range map[string]struct {
		answers []error
		want    error
	}{
		"ready later":    {[]error{notReady, notReady, nil}, nil},
		"denied":         {[]error{denied}, denied},
		"denied at last": {[]error{notReady, denied}, denied},
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
	if err := retryUntilPoliciesReady(ctx, func(context.Context) error { cancel(); return notReady }); !errors.Is(err, notReady) {
		t.Errorf("an interrupted wait must return the last error: %v", err)
	}
}
