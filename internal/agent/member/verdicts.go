package member

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/objects"
)

// VerdictStore keeps the verdicts about stale members in a ConfigMap of this cluster, one key per
// member. It is written only when a verdict changes.
type VerdictStore struct {
	Client client.Client // uncached
}

var verdictsKey = types.NamespacedName{Namespace: objects.AgentNamespace, Name: objects.LivenessConfigMap}

// Load returns the stored verdicts, none if there is no ConfigMap yet. With an error about entries
// that cannot be parsed it returns the others.
func (s *VerdictStore) Load(ctx context.Context) (map[string]Verdict, error) {
	stored := &corev1.ConfigMap{}
	if err := s.Client.Get(ctx, verdictsKey, stored); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return parseVerdicts(stored.Data)
}

// Save replaces the stored verdicts.
func (s *VerdictStore) Save(ctx context.Context, verdicts map[string]Verdict) error {
	data, err := formatVerdicts(verdicts)
	if err != nil {
		return err
	}
	stored := &corev1.ConfigMap{}
	err = s.Client.Get(ctx, verdictsKey, stored)
	switch {
	case apierrors.IsNotFound(err):
		err = s.Client.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: verdictsKey.Namespace, Name: verdictsKey.Name}, Data: data,
		})
	case err == nil && !maps.Equal(stored.Data, data):
		stored.Data = data
		err = s.Client.Update(ctx, stored)
	}
	if err != nil {
		return fmt.Errorf("write ConfigMap %s: %w", verdictsKey, err)
	}
	return nil
}

func formatVerdicts(verdicts map[string]Verdict) (map[string]string, error) {
	data := make(map[string]string, len(verdicts))
	for cluster, verdict := range verdicts {
		text, err := json.Marshal(verdict)
		if err != nil {
			return nil, fmt.Errorf("format the verdict about cluster %s: %w", cluster, err)
		}
		data[cluster] = string(text)
	}
	return data, nil
}

func parseVerdicts(data map[string]string) (map[string]Verdict, error) {
	verdicts := map[string]Verdict{}
	var errs []error
	for cluster, text := range data {
		var verdict Verdict
		if err := json.Unmarshal([]byte(text), &verdict); err != nil {
			errs = append(errs, fmt.Errorf("ConfigMap %s: parse the verdict about cluster %s: %w", verdictsKey, cluster, err))
			continue
		}
		verdicts[cluster] = verdict
	}
	return verdicts, errors.Join(errs...)
}
