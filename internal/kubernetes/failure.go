package kubernetes

import (
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/modbox/modbox/internal/sandbox"
)

// errSlow ends the wait for a worker.
var errSlow = errors.New("the Pod took too long")

// isQuota reports whether a Pod was refused because of a ResourceQuota: Kubernetes has no reason of its own for that.
func isQuota(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota")
}

// failure returns why a Pod will not start; nil while it may. known is whether the watch has had it.
func failure(name string, pod *corev1.Pod, known bool) error {
	switch {
	case pod == nil && known:
		return sandbox.Errorf(sandbox.Unavailable, "the Pod %s was deleted while it started; try again", name)
	case pod == nil:
		return nil
	case pod.DeletionTimestamp != nil:
		return sandbox.Errorf(sandbox.Unavailable, "the Pod %s is being deleted while it starts; try again", name)
	case ended(pod):
		return sandbox.Errorf(sandbox.Unavailable, "%s", endOf(pod))
	}
	for _, c := range pod.Status.ContainerStatuses {
		w := c.State.Waiting
		if w == nil {
			continue
		}
		switch w.Reason {
		case "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull":
			return sandbox.Wrap(sandbox.Unavailable, errors.New(w.Message), "the node cannot pull the image of the Pod %s (%s); an administrator must correct the image", name, w.Reason)
		case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
			return sandbox.Wrap(sandbox.Unavailable, errors.New(w.Message), "the node cannot start the Pod %s (%s); an administrator must correct the template of Pods", name, w.Reason)
		}
	}
	return nil
}

// tooSlow returns the error for a Pod whose worker has not connected in time.
func tooSlow(name string, pod *corev1.Pod) error {
	if pod == nil {
		return sandbox.Errorf(sandbox.Unavailable, "nothing was heard of the Pod %s in time; try again", name)
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return sandbox.Wrap(sandbox.Unavailable, errors.New(c.Message), "no node of the cluster has space for the Pod %s; try again when sandboxes have ended or paused, or add a node", name)
		}
	}
	return sandbox.Errorf(sandbox.Unavailable, "the worker in the Pod %s has not connected in time (the Pod is %s); try again", name, pod.Status.Phase)
}

// ended reports whether the worker of a Pod has ended.
func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// endOf returns how the worker of a Pod ended, as a sentence.
func endOf(pod *corev1.Pod) string {
	text := "the Pod " + pod.Name + " of the sandbox has ended"
	if pod.Status.Reason != "" {
		return text + " (" + pod.Status.Reason + ")" // such as Evicted
	}
	for _, c := range pod.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil && t.Reason != "" {
			return text + " (" + t.Reason + ")" // such as OOMKilled
		}
	}
	return text
}
