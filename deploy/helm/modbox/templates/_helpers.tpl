{{/* Name of the server's objects; others begin with it. A name of a StatefulSet leaves space for the ordinal and the hash of its Pods. */}}
{{- define "modbox.name" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains "modbox" .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-modbox" (.Release.Name | trunc 33 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{- define "modbox.worker" -}}
{{- include "modbox.name" . }}-worker
{{- end -}}

{{/* Labels that select Pods; the component is added. */}}
{{- define "modbox.selector" -}}
app.kubernetes.io/name: modbox
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "modbox.labels" -}}
{{ include "modbox.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Labels of Pods, without versions: another label would restart the workers, and end their sandboxes. */}}
{{- define "modbox.podLabels" -}}
{{ include "modbox.selector" . }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "modbox.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "modbox.joinSecret" -}}
{{- .Values.worker.joinSecret | default (printf "%s-join" (include "modbox.name" .)) -}}
{{- end -}}

{{- define "modbox.scheme" -}}
{{- if .Values.server.tls.secret }}https{{ else }}http{{ end -}}
{{- end -}}

{{/* The URL of the server, by default of its Service in the cluster. */}}
{{- define "modbox.url" -}}
{{- if .Values.publicURL -}}
{{ .Values.publicURL }}
{{- else -}}
{{- $port := printf ":%v" .Values.server.service.port -}}
{{- if has (printf "%s%s" (include "modbox.scheme" .) $port) (list "http:80" "https:443") }}{{ $port = "" }}{{ end -}}
{{ include "modbox.scheme" . }}://{{ include "modbox.name" . }}.{{ .Release.Namespace }}.svc{{ $port }}
{{- end -}}
{{- end -}}

{{/* The host of a URL, without a port. */}}
{{- define "modbox.host" -}}
{{- regexReplaceAll ":[0-9]+$" (urlParse .).host "" -}}
{{- end -}}

{{/* The settings of the server: the chart's, and over them those of the values. */}}
{{- define "modbox.serverConfig" -}}
{{- $v := .Values -}}
{{- $http := dict -}}
{{- if not $v.server.tls.secret }}{{ $_ := set $http "allow_insecure" true }}{{ end -}}
{{- with $v.ingress.trustedProxies }}{{ $_ := set $http "trusted_proxies" . }}{{ end -}}
{{- $config := dict
  "role" "control"
  "listen" ":7070"
  "public_url" (include "modbox.url" .)
  "domain" $v.domain
  "state_dir" "/var/lib/modbox/state"
  "http" $http
  "log" (dict "format" "json")
  "metrics" (dict "access" "token")
  "console" (dict "url" ($v.consoleURL | default "off"))
  "worker" (dict "listen" ":7071" "secret_dir" "/etc/modbox/join")
  "capacity" (dict "memory_overcommit" 1)
-}}
{{- if $v.worker.perSandbox }}{{ $_ := set $config "kubernetes" (dict "pod_template" "/etc/modbox/pod/pod.yaml" "sandboxes_per_pod" (int $v.worker.sandboxesPerPod)) }}{{ $_ := set $config "template" (dict "max_bytes" 0) }}{{ end -}}
{{- if gt (int $v.server.replicas) 1 }}{{ $_ := set $config "standby" true }}{{ end -}}
{{- if gt (int $v.server.active) 1 }}{{ $_ := set $config "replica" (dict "active" (int $v.server.active)) }}{{ end -}}
{{- if $v.server.tls.secret }}{{ $_ := set $config "tls" (dict "cert" "/etc/modbox/tls/tls.crt" "key" "/etc/modbox/tls/tls.key") }}{{ end -}}
{{- if $v.server.ssh.enabled }}{{ $_ := set $config "ssh" (dict "listen" ":2222" "public_address" $v.server.ssh.publicAddress) }}{{ end -}}
{{- toYaml (mergeOverwrite $config (deepCopy $v.server.config)) -}}
{{- end -}}

{{- define "modbox.workerConfig" -}}
{{- $config := dict "log" (dict "format" "json") -}}
{{- toYaml (mergeOverwrite $config (deepCopy .Values.worker.config)) -}}
{{- end -}}

{{/* The rule of a NetworkPolicy for the DNS servers of the cluster, wherever they are, and for NodeLocal DNSCache, which is no Pod. */}}
{{- define "modbox.dns" -}}
- ports:
    - port: 53
      protocol: UDP
    - port: 53
      protocol: TCP
  to:
    - namespaceSelector: {}
    - ipBlock:
        cidr: 169.254.20.10/32
{{- end -}}

{{/* The claim of a volume. */}}
{{- define "modbox.claim" -}}
accessModes: {{- toYaml .accessModes | nindent 2 }}
{{- with .storageClass }}
storageClassName: {{ . }}
{{- end }}
resources:
  requests:
    storage: {{ .size }}
{{- end -}}

{{/* What every container has: an ordinary user, and nothing that it could write but its volumes. */}}
{{- define "modbox.containerSecurity" -}}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
readOnlyRootFilesystem: true
{{- end -}}

{{- define "modbox.podSecurity" -}}
fsGroup: 1000
# Otherwise a start changes the mode of all files on the volume.
fsGroupChangePolicy: OnRootMismatch
runAsGroup: 1000
runAsNonRoot: true
runAsUser: 1000
{{- end -}}
