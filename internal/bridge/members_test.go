package bridge

import (
	"reflect"
	"testing"

	"github.com/seamark-dev/seamark/internal/agent/member"
	"github.com/seamark-dev/seamark/internal/objects"
)

// The bridge sets all that a heartbeat calls. One that lacks a function works until it needs it:
// after a long silence, or when the broker was restored.
func TestHeartbeatIsComplete(t *testing.T) {
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	b := &bridge{scheme: scheme, seamarkTransport: member.NewTransport()}
	c, err := b.join(objects.Membership{ClusterID: "east", Server: "https://broker.example", Namespace: "broker", ClusterSet: "set", Token: "token"})
	if err != nil {
		t.Fatal(err)
	}
	fields := reflect.ValueOf(c.heartbeat).Elem()
	for i := range fields.NumField() {
		field := fields.Type().Field(i)
		switch field.Type.Kind() {
		case reflect.Func, reflect.Chan, reflect.Interface:
			if field.IsExported() && fields.Field(i).IsNil() {
				t.Errorf("the heartbeat has no %s", field.Name)
			}
		default:
		}
	}
}
