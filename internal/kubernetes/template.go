package kubernetes

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/modbox/modbox/internal/driver/fleet"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// workerLabel is the label with the id of a worker, sandboxLabel and workspaceLabel name its box; a worker for several boxes has no sandboxLabel.
	workerLabel    = "modbox/worker"
	sandboxLabel   = "modbox/sandbox"
	workspaceLabel = "modbox/workspace"
	// installationLabel and epochLabel name the server that has made a Pod.
	installationLabel = "modbox/installation"
	epochLabel        = "modbox/epoch"
	// rangeLabel is the label with the range of shards of the box for which a Pod was made. Pods of earlier versions have none.
	rangeLabel = "modbox/range"
	// tokenAnnotation has the token with which the worker joins.
	tokenAnnotation = "modbox/join-token"
	// container is the name of the template's container for the worker.
	container = "worker"
)

// ReadTemplate reads the template of Pods, a PodTemplate in YAML, which must have labels and a container named "worker".
func ReadTemplate(path string) (*corev1.PodTemplateSpec, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("template of Pods: %w", err)
	}
	var read corev1.PodTemplate
	if err := yaml.UnmarshalStrict(text, &read); err != nil {
		return nil, fmt.Errorf("template of Pods %s: %w", path, err)
	}
	t := &read.Template
	switch {
	case len(t.Labels) == 0:
		err = errors.New("it has no labels, by which its Pods are found")
	case !slices.ContainsFunc(t.Spec.Containers, isWorker):
		err = fmt.Errorf("it has no container named %q", container)
	case t.Spec.RestartPolicy != corev1.RestartPolicyNever:
		err = errors.New("restartPolicy must be Never: a container that starts anew has no sandbox")
	}
	if err != nil {
		return nil, fmt.Errorf("template of Pods %s: %w", path, err)
	}
	return t, nil
}

func isWorker(c corev1.Container) bool { return c.Name == container }

// podName returns the name of the Pod of a worker.
func podName(id string) string { return strings.ToLower(id) }

// pod returns the Pod of a worker: the template with the id of the worker, and the resources of the box.
func (p *Pods) pod(w fleet.Wanted) *corev1.Pod {
	t := p.cfg.Template.DeepCopy()
	pod := &corev1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec}
	pod.Name, pod.Namespace = podName(w.ID), p.cfg.Namespace
	label := func(name, value string) {
		if value != "" && len(validation.IsValidLabelValue(value)) == 0 {
			pod.Labels[name] = value
		}
	}
	label(workerLabel, w.ID)
	boxes := int64(max(w.Boxes, 1))
	if boxes == 1 {
		label(sandboxLabel, string(w.Box.ID))
	}
	label(workspaceLabel, string(w.Workspace))
	label(installationLabel, p.cfg.Installation)
	label(epochLabel, strconv.FormatInt(p.cfg.Epoch, 10))
	label(rangeLabel, strconv.Itoa(w.Box.ID.Shard().Range()))
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, tokenAnnotation, p.cfg.Token(w.ID))
	c := &pod.Spec.Containers[slices.IndexFunc(pod.Spec.Containers, isWorker)]
	c.Args = append(c.Args, "--id="+w.ID)
	if p.cfg.Join != "" { // the template may name all servers
		first := slices.IndexFunc(c.Args, func(arg string) bool { return strings.HasPrefix(arg, "--") })
		c.Args = slices.Insert(c.Args, first, "--join="+p.cfg.Join)
	}
	r := w.Box.Resources
	memory := resource.NewQuantity(boxes*(r.MemoryBytes+p.cfg.MemoryOverhead), resource.BinarySI)
	cpu := resource.NewMilliQuantity(boxes*r.CPUMilli, resource.DecimalSI)
	// The writable layers, the root filesystem beside them, and the memory while it is saved.
	disk := resource.NewQuantity(boxes*(r.DiskBytes+r.MemoryBytes)+w.Files+p.cfg.DiskOverhead, resource.BinarySI)
	list := corev1.ResourceList{corev1.ResourceMemory: *memory, corev1.ResourceCPU: *cpu, corev1.ResourceEphemeralStorage: *disk}
	c.Resources = corev1.ResourceRequirements{Requests: list, Limits: list.DeepCopy()}
	return pod
}

// selector returns the selector of the Pods of the template that servers of the installation have made for sandboxes of the ranges of this server. The server of
// the first range also has the Pods without a range.
func (p *Pods) selector() string {
	labels := maps.Clone(p.cfg.Template.Labels)
	labels[installationLabel] = p.cfg.Installation
	selector := metav1.LabelSelector{MatchLabels: labels}
	var own, others []string
	for n := range sandbox.RangeCount {
		if p.cfg.Own.HasRange(n) {
			own = append(own, strconv.Itoa(n))
		} else {
			others = append(others, strconv.Itoa(n))
		}
	}
	switch {
	case len(own) == 0 || len(others) == 0:
	case p.cfg.Own.HasRange(0):
		selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: rangeLabel, Operator: metav1.LabelSelectorOpNotIn, Values: others}}
	default:
		selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: rangeLabel, Operator: metav1.LabelSelectorOpIn, Values: own}}
	}
	return metav1.FormatLabelSelector(&selector)
}

// epochOf returns the epoch of the server that has made a Pod; 0 if it is not known.
func epochOf(pod *corev1.Pod) int64 {
	n, _ := strconv.ParseInt(pod.Labels[epochLabel], 10, 64) // no server has another text
	return n
}
