package chart_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/modbox/modbox/test/chart"
)

// cluster has objects that templates look up. It implements [engine.ClientProvider].
type cluster struct{ dynamic.Interface }

func newCluster(t *testing.T, objects ...runtime.Object) cluster {
	t.Helper()
	types := runtime.NewScheme()
	if err := scheme.AddToScheme(types); err != nil {
		t.Fatal(err)
	}
	return cluster{fake.NewSimpleDynamicClient(types, objects...)}
}

func (c cluster) GetClientFor(apiVersion, kind string) (dynamic.NamespaceableResourceInterface, bool, error) {
	v, err := schema.ParseGroupVersion(apiVersion)
	resource := map[string]string{"Secret": "secrets", "StatefulSet": "statefulsets"}[kind]
	return c.Resource(v.WithResource(resource)), true, err
}

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: chart.Release}
}

// An upgrade keeps the authority and the token: with others, workers would be refused.
func TestUpgradeKeepsTheJoinSecret(t *testing.T) {
	want := map[string][]byte{"authority.pem": []byte("authority\n"), "token": []byte("token")}
	r, err := chart.RenderIn(newCluster(t, &corev1.Secret{ObjectMeta: named("modbox-join"), Data: want}), chart.Dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, find[corev1.Secret](t, decode(t, r), "modbox-join").Data); diff != "" {
		t.Errorf("the Secret (-before +after):\n%s", diff)
	}
}

// Without a number in the manifest, Kubernetes would end all workers but one before the autoscaler sets its own.
func TestAutoscaledWorkersKeepTheirNumber(t *testing.T) {
	values := map[string]any{"worker": map[string]any{"autoscaling": map[string]any{"enabled": true, "minReplicas": 3}}}
	for name, tc := range map[string]struct {
		before []runtime.Object
		want   int32
	}{
		"first":     {nil, 3},
		"autoscale": {[]runtime.Object{&appsv1.StatefulSet{ObjectMeta: named("modbox-worker"), Spec: appsv1.StatefulSetSpec{Replicas: new(int32(7))}}}, 7},
		"fewer":     {[]runtime.Object{&appsv1.StatefulSet{ObjectMeta: named("modbox-worker"), Spec: appsv1.StatefulSetSpec{Replicas: new(int32(1))}}}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := chart.RenderIn(newCluster(t, tc.before...), chart.Dir, values)
			if err != nil {
				t.Fatal(err)
			}
			if got := find[appsv1.StatefulSet](t, decode(t, r), "modbox-worker").Spec.Replicas; got == nil || *got != tc.want {
				t.Errorf("replicas are %v, want %d", got, tc.want)
			}
		})
	}
}
