{{/* Name of what the chart makes; with room for what follows it. */}}
{{- define "millrace.fullname" -}}
{{- $name := .Release.Name }}
{{- if not (contains .Chart.Name $name) }}
{{- $name = printf "%s-%s" .Release.Name .Chart.Name }}
{{- end }}
{{- .Values.fullnameOverride | default $name | trunc 45 | trimSuffix "-" }}
{{- end }}

{{/* Name of what belongs to the operator itself. */}}
{{- define "millrace.operator" -}}
{{ include "millrace.fullname" . }}-operator
{{- end }}

{{- define "millrace.releaseLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Labels that find the operator's pods: drivers have the same name, and another component. */}}
{{- define "millrace.selectorLabels" -}}
{{ include "millrace.releaseLabels" . }}
app.kubernetes.io/component: operator
{{- end }}

{{/* What follows the name of a shard's objects, of a list: the chart's context, and the shard; nothing for one alone. */}}
{{- define "millrace.shardSuffix" -}}
{{- $shards := int (first .).Values.shards }}
{{- if gt $shards 1 }}{{ printf "-%d-of-%d" (int (last .)) $shards }}{{ end }}
{{- end }}

{{/* Labels that find the pods of one shard, of a list: the chart's context, and the shard. */}}
{{- define "millrace.shardLabels" -}}
{{ include "millrace.selectorLabels" (first .) }}
{{- with include "millrace.shardSuffix" . }}
millrace.io/shard: {{ trimPrefix "-" . }}
{{- end }}
{{- end }}

{{/* Labels of all objects. */}}
{{- define "millrace.labels" -}}
{{ include "millrace.releaseLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- range $name, $value := .Values.commonLabels }}
{{ $name }}: {{ $value | quote }}
{{- end }}
{{- end }}

{{- define "millrace.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary (include "millrace.operator" .) "default") }}
{{- end }}

{{/* An image, of a list: its values, and the chart's context. */}}
{{- define "millrace.image" -}}
{{- $image := first . }}
{{- $repository := list (last .).Values.global.imageRegistry $image.repository | compact | join "/" }}
{{- with $image.digest }}
{{- printf "%s@%s" $repository . }}
{{- else }}
{{- printf "%s:%s" $repository ($image.tag | default (last .).Chart.AppVersion) }}
{{- end }}
{{- end }}

{{/* The security context of a pod. */}}
{{- define "millrace.podSecurityContext" -}}
{{- $fixed := .Values.fixedUser | ternary (dict "runAsUser" 10001 "runAsGroup" 10001 "fsGroup" 10001) (dict) }}
{{- mergeOverwrite $fixed .Values.podSecurityContext | toYaml }}
{{- end }}

{{/* Annotations of an object, of a list: the chart's context, and those of its kind; nothing where there are none. */}}
{{- define "millrace.annotations" -}}
{{- with mergeOverwrite (dict) (first .).Values.commonAnnotations (last .) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* What of the values cannot be, and no schema can say as clearly. */}}
{{- define "millrace.check" -}}
{{- if and .Values.page.enabled (eq (int .Values.page.port) (int .Values.metrics.port)) }}
{{- fail (printf "page.port and metrics.port are both %d: write another port for one of them" (int .Values.page.port)) }}
{{- end }}
{{- with .Values.prometheus }}
{{- range $name := list "caSecret" "tokenSecret" "basicAuthSecret" }}
{{- if and (get $.Values.prometheus $name).name (not $.Values.prometheus.url) }}
{{- fail (printf "prometheus.%s.name is set, but prometheus.url is not: write the URL too, or leave the Secret out" $name) }}
{{- end }}
{{- end }}
{{- if and .tokenSecret.name .basicAuthSecret.name }}
{{- fail "prometheus.tokenSecret and prometheus.basicAuthSecret are both set: keep one of them" }}
{{- end }}
{{- if and .caSecret.name (hasPrefix "http:" .url) }}
{{- fail (printf "prometheus.caSecret.name is set, but prometheus.url is %s: write https://" .url) }}
{{- end }}
{{- end }}
{{- end }}

{{/* The policy, as the operator reads it. */}}
{{- define "millrace.policy" -}}
{{ toYaml (dict "policy" .Values.policy) }}
{{- end }}

{{/* A small query of the given name, without its checkpoint: for `helm test`, and for who has just installed the chart. */}}
{{- define "millrace.smallQuery" -}}
sources:
  ticks:
    rate: {recordsPerSecond: 10}
query:
  sql: SELECT key, value FROM ticks WHERE value >= 0.5
sink:
  console: {}
batchInterval: 2s
parallelism: {max: 1}
executors:
  initial: 1
  max: 1
  cores: 500m
  memory: 512Mi
  podTemplate:  # on the driver's node: a volume of most storage classes is mounted on one node at a time
    spec:
      affinity:
        podAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            - topologyKey: kubernetes.io/hostname
              labelSelector: {matchLabels: {millrace.io/query: {{ . }}, millrace.io/role: driver}}
driver: {cores: 500m, memory: 1Gi}
scaling: {mode: "Off"}
{{- end }}
