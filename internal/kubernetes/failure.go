package kubernetes

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/modbox/modbox/internal/driver/fleet"
	"github.com/modbox/modbox/internal/sandbox"
)

var (
	// errSlow ends the wait for a worker.
	errSlow = errors.New("the Pod took too long")
	// errDeleted is the cause of an error for a Pod that somebody else has deleted.
	errDeleted = errors.New("somebody deleted it")
)

// isQuota reports whether a Pod was refused because of a ResourceQuota: Kubernetes has no reason of its own for that.
func isQuota(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota")
}

// podError is [sandbox.Wrap] for the Pod of a worker. The name of the Pod is in the cause, and so in the log; the message is the same at each attempt.
func podError(w fleet.Wanted, code sandbox.Code, err error, format string, args ...any) error {
	return sandbox.Wrap(code, fmt.Errorf("the Pod %s: %w", podName(w.ID), err), format, args...)
}

// failure returns why a Pod will not start; nil while it may. known is whether the watch has had it.
func failure(w fleet.Wanted, pod *corev1.Pod, known bool) error {
	switch {
	case pod == nil && known:
		return podError(w, sandbox.Unavailable, errDeleted, "the Pod of sandbox %s was deleted while it started; try again", w.Box.ID)
	case pod == nil:
		return nil
	case pod.DeletionTimestamp != nil:
		return podError(w, sandbox.Unavailable, errDeleted, "the Pod of sandbox %s is being deleted while it starts; try again", w.Box.ID)
	case ended(pod):
		return podError(w, sandbox.Unavailable, errors.New(lossOf(pod, "has ended").Reason), "the Pod of sandbox %s has ended%s", w.Box.ID, reasonOf(pod))
	}
	for _, c := range pod.Status.ContainerStatuses {
		state := c.State.Waiting
		if state == nil {
			continue
		}
		switch state.Reason {
		case "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull":
			return podError(w, sandbox.Unavailable, errors.New(state.Message), "the node cannot pull the image of the Pod of sandbox %s (%s); an administrator must correct the image", w.Box.ID, state.Reason)
		case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
			return podError(w, sandbox.Unavailable, errors.New(state.Message), "the node cannot start the Pod of sandbox %s (%s); an administrator must correct the template of Pods", w.Box.ID, state.Reason)
		}
	}
	return nil
}

// tooSlow returns the error for a Pod whose worker has not connected in time.
func tooSlow(w fleet.Wanted, pod *corev1.Pod) error {
	if pod == nil {
		return podError(w, sandbox.Unavailable, errSlow, "Kubernetes has not reported the Pod of sandbox %s in time; try again", w.Box.ID)
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return podError(w, sandbox.Unavailable, errors.New(c.Message), "no node of the cluster has space for the Pod of sandbox %s; try again when sandboxes have ended or paused, or add a node", w.Box.ID)
		}
	}
	return podError(w, sandbox.Unavailable, fmt.Errorf("%w: its phase is %s", errSlow, pod.Status.Phase), "the worker in the Pod of sandbox %s has not connected in time; try again", w.Box.ID)
}

// ended reports whether the worker of a Pod has ended.
func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// oomKilled is the reason of Kubernetes for the end of a container that the kernel has killed for lack of memory.
const oomKilled = "OOMKilled"

// lossOf returns how the worker of a Pod was lost, to which something has happened.
func lossOf(pod *corev1.Pod, what string) fleet.Loss {
	return fleet.Loss{Reason: "the Pod of the sandbox " + what + reasonOf(pod), OOM: pod.Status.Reason == "" && terminationOf(pod) == oomKilled}
}

// reasonOf returns the reason of Kubernetes for the end of a Pod, in parentheses after a space; "" if there is none.
func reasonOf(pod *corev1.Pod) string {
	reason := pod.Status.Reason // such as Evicted
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && reason == "" {
			reason = c.Reason // such as PreemptionByScheduler, DeletionByTaintManager
		}
	}
	if reason = cmp.Or(reason, terminationOf(pod)); reason == "" {
		return ""
	}
	return " (" + reason + ")"
}

// terminationOf returns the reason why the container of the worker has ended; "" if it has not.
func terminationOf(pod *corev1.Pod) string {
	for _, c := range pod.Status.ContainerStatuses {
		for _, s := range []corev1.ContainerState{c.State, c.LastTerminationState} {
			if s.Terminated != nil && c.Name == container {
				return s.Terminated.Reason
			}
		}
	}
	return ""
}
