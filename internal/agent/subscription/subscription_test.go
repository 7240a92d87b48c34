package subscription

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

func selectionOf(names ...string) Selection {
	set := map[string]struct{}{}
	for _, name := range names {
		set[name] = struct{}{}
	}
	return Select(set)
}

func TestLabelSelector(t *testing.T) {
	var many []string
	for i := range 300 {
		many = append(many, fmt.Sprintf("%s-%d", strings.Repeat("n", 30), i))
	}
	for name, test := range map[string]struct {
		selection    Selection
		selects, not []string
	}{
		"none":               {selectionOf(), nil, []string{"shop", "no"}},
		"one":                {selectionOf("shop"), []string{"shop"}, []string{"shopping", "sho"}},
		"two":                {selectionOf("shop", "bank"), []string{"shop", "bank"}, []string{"other"}},
		"many, but not more": {selectionOf(many[:150]...), many[:150], many[150:]},
	} {
		t.Run(name, func(t *testing.T) {
			text := test.selection.LabelSelector()
			if len(text) > maxSelector {
				t.Errorf("the selector has %d bytes", len(text))
			}
			selector, err := labels.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			matches := func(namespace string) bool {
				return selector.Matches(labels.Set{v1alpha1.LabelServiceNamespace: namespace})
			}
			for _, namespace := range test.selects {
				if !matches(namespace) || !test.selection.contains(namespace) {
					t.Errorf("%q does not select %s", text, namespace)
				}
			}
			for _, namespace := range test.not {
				if matches(namespace) || test.selection.contains(namespace) {
					t.Errorf("%q selects %s", text, namespace)
				}
			}
		})
	}
}

// The broker sends the services of more namespaces than a selector can name, and others: these are
// left out.
func TestTooManyNamespaces(t *testing.T) {
	var many []string
	for i := range 300 {
		many = append(many, fmt.Sprintf("%s-%d", strings.Repeat("n", 30), i))
	}
	all := selectionOf(many...)
	if all.LabelSelector() != "" || !all.contains(many[0]) || all.contains("shop") {
		t.Errorf("the selector is %q; it contains a namespace: %t, and another: %t", all.LabelSelector(), all.contains(many[0]), all.contains("shop"))
	}
	if fewer := all.minus(selectionOf(many[150:]...)); fewer.LabelSelector() == "" || fewer.plus(all).LabelSelector() != "" {
		t.Errorf("with half of them the selector is %q, with all again %q", fewer.LabelSelector(), fewer.plus(all).LabelSelector())
	}
}

// A namespace concerns a cluster while it exists, and afterwards until it is released.
func TestNamespaces(t *testing.T) {
	n := NewNamespaces()
	n.Add("shop")
	n.AddPublished("bank")
	_, changed := n.selection()
	n.Add("shop")
	select {
	case <-changed:
		t.Error("a namespace that was known is a change")
	default:
	}
	for _, namespace := range []string{"shop", "bank"} {
		if !n.Concern(namespace) {
			t.Errorf("%s does not concern the cluster", namespace)
		}
	}
	n.Delete("shop")
	if !n.Concern("shop") || len(n.Gone()) != 2 {
		t.Errorf("after its end shop concerns the cluster: %t; gone are %v", n.Concern("shop"), n.Gone())
	}
	n.Release("shop")
	select {
	case <-changed:
	default:
		t.Error("a namespace that went is no change")
	}
	if n.Concern("shop") || !n.Concern("bank") || !Every().Concern("shop") {
		t.Errorf("after its release shop concerns the cluster: %t, bank: %t", n.Concern("shop"), n.Concern("bank"))
	}
}

// After a namespace was added, the watch repeats what it needs, and only what the informer does not
// have yet is passed on.
func TestProgress(t *testing.T) {
	type event struct {
		namespace string
		version   int64
		isNew     bool
	}
	for name, test := range map[string]struct {
		seen, listed int64
		startsAt     int64
		events       []event
	}{
		"the list is newer": {10, 14, 10, []event{
			{"old", 11, true}, {"new", 12, false}, {"new", 14, false}, {"old", 15, true}, {"new", 16, true},
		}},
		"the list is older": {10, 7, 7, []event{
			{"old", 8, false}, {"new", 9, true}, {"old", 10, false}, {"old", 11, true}, {"new", 12, true},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := progress{seen: test.seen}.add(selectionOf("new"), test.listed)
			if p.seen != test.startsAt {
				t.Errorf("the watch starts at %d, want %d", p.seen, test.startsAt)
			}
			for _, e := range test.events {
				if got := p.observe(e.namespace, e.version); got != e.isNew {
					t.Errorf("event %d of %s is new: %t, want %t", e.version, e.namespace, got, e.isNew)
				}
			}
			if p.listed != nil || p.others != 0 {
				t.Errorf("the watch has passed everything, and still compares with %+v", p)
			}
		})
	}
	// A second namespace comes before the watch has passed the list of the first.
	p := progress{seen: 10}.add(selectionOf("first"), 14)
	p.observe("old", 12)
	p = p.add(selectionOf("second"), 13)
	for _, e := range []event{
		{"old", 12, false}, {"first", 13, false}, {"second", 13, false}, {"first", 14, false}, {"second", 14, true}, {"first", 15, true},
	} {
		if got := p.observe(e.namespace, e.version); got != e.isNew {
			t.Errorf("event %d of %s is new: %t, want %t", e.version, e.namespace, got, e.isNew)
		}
	}
}
