package sim

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// detector finds out whether an agent changed an object that it read. Servers and caches share
// their objects, so that such a change would reach other agents. A nil detector does nothing: it
// takes time.
type detector struct {
	objects, copies []client.Object
}

func (d *detector) watch(obj client.Object) {
	if d != nil {
		d.objects = append(d.objects, obj)
		d.copies = append(d.copies, obj.DeepCopyObject().(client.Object))
	}
}

// check returns which object was changed.
func (d *detector) check() error {
	if d == nil {
		return nil
	}
	for i, obj := range d.objects {
		if !equality.Semantic.DeepEqual(obj, d.copies[i]) {
			return fmt.Errorf("an agent changed %s %s, which it had read, without a copy: it is\n%v\nand was\n%v",
				kindOf(obj).name, obj.GetName(), obj, d.copies[i])
		}
	}
	return nil
}

func (w *world) servers() []*server {
	out := []*server{w.broker}
	for _, m := range w.members {
		out = append(out, m.server)
	}
	return out
}

func (w *world) detectChanges() {
	for _, s := range w.servers() {
		s.detector = &detector{}
	}
}

func (w *world) changed() error {
	var errs []error
	for _, s := range w.servers() {
		errs = append(errs, s.detector.check())
	}
	return errors.Join(errs...)
}
