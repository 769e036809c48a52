package chart_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/scheme"
	podsecurity "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/modbox/modbox/test/chart"
)

// object is any object of the chart.
type object interface {
	metav1.Object
	runtime.Object
}

// decode returns the objects of a rendered chart, as the API server of Kubernetes reads them: an unknown or duplicate field is an error.
func decode(t *testing.T, r chart.Rendered) []object {
	t.Helper()
	types := runtime.NewScheme()
	if err := scheme.AddToScheme(types); err != nil {
		t.Fatal(err)
	}
	if err := monitoringv1.AddToScheme(types); err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(types, serializer.EnableStrict).UniversalDeserializer()
	var list []object
	for _, document := range r.Documents {
		o, _, err := decoder.Decode([]byte(document), nil, nil)
		if err != nil {
			t.Fatalf("%v\n%s", err, document)
		}
		list = append(list, o.(object))
	}
	return list
}

// find returns the object of a type with a name.
func find[T any](t *testing.T, list []object, name string) *T {
	t.Helper()
	for _, o := range list {
		if found, ok := any(o).(*T); ok && o.GetName() == name {
			return found
		}
	}
	t.Fatalf("there is no %T %s", *new(T), name)
	return nil
}

func has[T any](list []object, name string) bool {
	return slices.ContainsFunc(list, func(o object) bool {
		_, ok := any(o).(*T)
		return ok && o.GetName() == name
	})
}

func TestNamesAndLabels(t *testing.T) {
	for name, r := range cases(t) {
		seen := map[string]bool{}
		for _, o := range decode(t, r) {
			id := fmt.Sprintf("%T %s", o, o.GetName())
			if seen[id] {
				t.Errorf("%s: %s is there twice", name, id)
			}
			seen[id] = true
			for _, problem := range validation.IsDNS1123Label(o.GetName()) {
				t.Errorf("%s: %s: %s", name, id, problem)
			}
			for _, err := range metavalidation.ValidateLabels(o.GetLabels(), field.NewPath("labels")) {
				t.Errorf("%s: %s: %v", name, id, err)
			}
			if o.GetNamespace() != "" {
				t.Errorf("%s: %s names a namespace, which is the release's", name, id)
			}
		}
	}
}

// workload is the server, the workers, or the Pods that the server makes for sandboxes.
type workload struct {
	name     string
	replicas *int32
	selector metav1.LabelSelector
	template corev1.PodTemplateSpec
	claims   []corev1.PersistentVolumeClaim
	service  string // the governing Service of a StatefulSet
}

// workloads returns the server, the workers, and the Pods of sandboxes, if the server makes them, by component.
func workloads(t *testing.T, list []object) map[string]workload {
	t.Helper()
	found := map[string]workload{}
	for _, o := range list {
		component := o.GetLabels()["app.kubernetes.io/component"]
		switch o := o.(type) {
		case *appsv1.StatefulSet:
			if o.Spec.PodManagementPolicy != appsv1.ParallelPodManagement {
				t.Errorf("%s: a Pod that never becomes ready keeps its correction away", o.Name)
			}
			found[component] = workload{o.Name, o.Spec.Replicas, *o.Spec.Selector, o.Spec.Template, o.Spec.VolumeClaimTemplates, o.Spec.ServiceName}
		case *appsv1.Deployment:
			if most := o.Spec.Strategy.RollingUpdate.MaxUnavailable; most.IntValue() != 0 {
				t.Errorf("%s: an update ends servers before others take their requests: maxUnavailable is %s", o.Name, most)
			}
			if shared := o.Spec.Template.Spec.ShareProcessNamespace; shared == nil || !*shared {
				t.Errorf("%s: the kernel does not end a server that stands still, because it is the first process of its container", o.Name)
			}
			found[component] = workload{name: o.Name, replicas: o.Spec.Replicas, selector: *o.Spec.Selector, template: o.Spec.Template}
		case *corev1.ConfigMap:
			if text := o.Data["pod.yaml"]; text != "" {
				pod := decode(t, chart.Rendered{Documents: []string{text}})[0].(*corev1.PodTemplate)
				found["sandbox"] = workload{name: pod.Name, selector: metav1.LabelSelector{MatchLabels: pod.Template.Labels}, template: pod.Template}
			}
		}
	}
	if found["server"].name == "" || found["worker"].name == "" {
		t.Fatalf("the workloads are %v", found)
	}
	return found
}

// Names in an object lead to what the chart has, or to what the values name.
func TestReferences(t *testing.T) {
	for name, r := range cases(t) {
		t.Run(name, func(t *testing.T) {
			list := decode(t, r)
			sets := workloads(t, list)
			for _, set := range sets {
				checkPod(t, list, set)
			}
			for _, o := range list {
				switch o := o.(type) {
				case *corev1.Service:
					checkService(t, sets, o)
				case *networkingv1.NetworkPolicy:
					checkPolicy(t, sets, o)
				case *networkingv1.Ingress:
					checkIngress(t, list, o)
				case *policyv1.PodDisruptionBudget:
					selects(t, o.Name, *o.Spec.Selector, sets[o.Spec.Selector.MatchLabels["app.kubernetes.io/component"]])
				case *autoscalingv2.HorizontalPodAutoscaler:
					if r := sets["worker"].replicas; o.Spec.ScaleTargetRef.Name != sets["worker"].name || r == nil || *r != *o.Spec.MinReplicas {
						t.Errorf("it scales %s, and the StatefulSet %s has replicas %v", o.Spec.ScaleTargetRef.Name, sets["worker"].name, r)
					}
				case *monitoringv1.ServiceMonitor:
					checkMonitor(t, list, o)
				}
			}
		})
	}
}

// selects checks that a selector selects the Pods of a StatefulSet.
func selects(t *testing.T, what string, selector metav1.LabelSelector, set workload) {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(&selector)
	if err != nil {
		t.Fatal(err)
	}
	if s.Empty() || !s.Matches(labels.Set(set.template.Labels)) {
		t.Errorf("%s: the selector %s does not select the Pods of %s", what, s, set.name)
	}
}

func checkPod(t *testing.T, list []object, set workload) {
	t.Helper()
	pod := set.template.Spec
	selects(t, set.name, set.selector, set)
	if set.service != "" && !has[corev1.Service](list, set.service) || !has[corev1.ServiceAccount](list, pod.ServiceAccountName) {
		t.Errorf("%s has the Service %q and the ServiceAccount %s, which do not exist", set.name, set.service, pod.ServiceAccountName)
	}
	calls := set.name == "modbox" && has[rbacv1.RoleBinding](list, "modbox-sandbox") // the server makes Pods
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken != calls {
		t.Errorf("%s gets a token of Kubernetes' API, or it gets none: %v", set.name, pod.AutomountServiceAccountToken)
	}
	volumes := map[string]bool{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = true
		if v.PersistentVolumeClaim != nil && !has[corev1.PersistentVolumeClaim](list, v.PersistentVolumeClaim.ClaimName) {
			t.Errorf("%s mounts the claim %s, which does not exist", set.name, v.PersistentVolumeClaim.ClaimName)
		}
		if v.ConfigMap != nil && v.Name == "config" && !has[corev1.ConfigMap](list, v.ConfigMap.Name) {
			t.Errorf("%s mounts the ConfigMap %s, which does not exist", set.name, v.ConfigMap.Name)
		}
	}
	for _, claim := range set.claims {
		volumes[claim.Name] = true
	}
	for _, c := range pod.Containers {
		for _, m := range c.VolumeMounts {
			if !volumes[m.Name] {
				t.Errorf("%s mounts the volume %s, which does not exist", set.name, m.Name)
			}
		}
		for _, p := range []*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
			if p != nil && !hasPort(c, p.HTTPGet.Port) {
				t.Errorf("%s has a probe of the port %s, which does not exist", set.name, p.HTTPGet.Port.String())
			}
		}
	}
	for _, c := range pod.TopologySpreadConstraints {
		selects(t, set.name, *c.LabelSelector, set)
	}
}

func hasPort(c corev1.Container, port intstr.IntOrString) bool {
	return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == port.String() || p.ContainerPort == port.IntVal })
}

func checkService(t *testing.T, sets map[string]workload, s *corev1.Service) {
	t.Helper()
	set := sets[s.Spec.Selector["app.kubernetes.io/component"]]
	if set.name == "" {
		t.Fatalf("Service %s selects %v", s.Name, s.Spec.Selector)
	}
	selects(t, s.Name, metav1.LabelSelector{MatchLabels: s.Spec.Selector}, set)
	for _, p := range s.Spec.Ports {
		if !hasPort(set.template.Spec.Containers[0], p.TargetPort) {
			t.Errorf("Service %s has the port %s, which does not exist", s.Name, p.TargetPort.String())
		}
	}
}

func checkPolicy(t *testing.T, sets map[string]workload, p *networkingv1.NetworkPolicy) {
	t.Helper()
	set := sets[p.Spec.PodSelector.MatchLabels["app.kubernetes.io/component"]]
	selects(t, p.Name, p.Spec.PodSelector, set)
	for _, rule := range p.Spec.Ingress {
		for _, port := range rule.Ports {
			if !hasPort(set.template.Spec.Containers[0], *port.Port) {
				t.Errorf("NetworkPolicy %s has the port %s, which does not exist", p.Name, port.Port.String())
			}
		}
	}
	for _, rule := range p.Spec.Egress {
		for _, port := range rule.Ports {
			if port.Port.StrVal != "" && !hasPort(sets["server"].template.Spec.Containers[0], *port.Port) {
				t.Errorf("NetworkPolicy %s has the port %s, which does not exist", p.Name, port.Port.String())
			}
		}
	}
}

func checkIngress(t *testing.T, list []object, in *networkingv1.Ingress) {
	t.Helper()
	encrypted := map[string]bool{}
	for _, tls := range in.Spec.TLS {
		for _, host := range tls.Hosts {
			encrypted[host] = true
		}
	}
	for _, rule := range in.Spec.Rules {
		if !encrypted[rule.Host] {
			t.Errorf("the host %s has no certificate", rule.Host)
		}
		backend := rule.HTTP.Paths[0].Backend.Service
		service := find[corev1.Service](t, list, backend.Name)
		if !slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == backend.Port.Name }) {
			t.Errorf("the Ingress has the port %s, which the Service %s has not", backend.Port.Name, service.Name)
		}
	}
}

func checkMonitor(t *testing.T, list []object, m *monitoringv1.ServiceMonitor) {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(&m.Spec.Selector)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, o := range list {
		if service, ok := o.(*corev1.Service); ok && s.Matches(labels.Set(service.Labels)) {
			found = append(found, service.Name)
			if service.Spec.Ports[0].Name != m.Spec.Endpoints[0].Port {
				t.Errorf("the ServiceMonitor has the port %s, and the Service %s the port %s", m.Spec.Endpoints[0].Port, service.Name, service.Spec.Ports[0].Name)
			}
		}
	}
	if len(found) != 1 {
		t.Errorf("the ServiceMonitor selects the Services %v", found)
	}
}

// Everything but the two profiles of workers fits the Pod Security Standard "restricted", and with profiles from the node all does.
func TestPodSecurity(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range cases(t) {
		for component, set := range workloads(t, decode(t, r)) {
			pod := set.template
			var forbidden []string
			for _, result := range evaluator.EvaluatePod(podsecurity.LevelVersion{Level: podsecurity.LevelRestricted, Version: podsecurity.LatestVersion()}, &pod.ObjectMeta, &pod.Spec) {
				if !result.Allowed {
					forbidden = append(forbidden, result.ForbiddenReason)
				}
			}
			want := 0
			if component != "server" && name != "all" && name != "strict" {
				want = 2
			}
			if len(forbidden) != want || slices.ContainsFunc(forbidden, func(s string) bool {
				return !strings.Contains(s, "seccomp") && !strings.Contains(strings.ToLower(s), "apparmor")
			}) {
				t.Errorf("%s of %s: forbidden are %q, want %d about profiles", component, name, forbidden, want)
			}
		}
	}
}

// The authority's key stays with the server: with it a worker could be any other.
func TestWorkersHaveTheTokenOnly(t *testing.T) {
	for name, r := range cases(t) {
		for component, set := range workloads(t, decode(t, r)) {
			for _, v := range set.template.Spec.Volumes {
				if component != "server" && v.Secret != nil && (len(v.Secret.Items) != 1 || v.Secret.Items[0].Key != "token") {
					t.Errorf("%s: the volume %s of %s has %v of the Secret %s", name, v.Name, component, v.Secret.Items, v.Secret.SecretName)
				}
			}
		}
	}
}

// The server may do with Pods what it needs, in its own namespace, and only if it makes Pods for sandboxes.
func TestRightsOfTheServer(t *testing.T) {
	for name, r := range cases(t) {
		list := decode(t, r)
		_, pods := workloads(t, list)["sandbox"]
		if has[rbacv1.Role](list, "modbox-sandbox") != pods || has[rbacv1.RoleBinding](list, "modbox-sandbox") != pods || pods != (name == "persandbox" || name == "active") {
			t.Errorf("%s: the server makes Pods: %v, or its rights do not fit", name, pods)
		}
		for _, o := range list {
			switch o.(type) {
			case *rbacv1.ClusterRole, *rbacv1.ClusterRoleBinding:
				t.Errorf("%s: %s gives rights in other namespaces", name, o.GetName())
			}
		}
		if !pods {
			continue
		}
		want := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list", "watch", "create", "delete"}}}
		if diff := cmp.Diff(want, find[rbacv1.Role](t, list, "modbox-sandbox").Rules); diff != "" {
			t.Errorf("%s: the rights (-want +got):\n%s", name, diff)
		}
	}
}
