/* What the sandboxes of sessions use (§26.4): GET /v1/sessions/:id/sandbox measures one now;
   GET /metrics gives the last measurements of all of a tenant's as Prometheus reads them. */
#include "api/routes.h"
#include "api/service.h"
#include "api/sessions.h"
#include "base/mem.h"
#include "session/manager.h"
#include "session/sandboxes.h"

static const char *const state_words[] = {
    [SANDBOX_NONE] = "none",
    [SANDBOX_STOPPED] = "stopped",
    [SANDBOX_RUNNING] = "running",
    [SANDBOX_CRASHED] = "crashed",
};

/* One sandbox */

/* Providers say 0 for what they cannot know. */
static json_t *known(uint64_t value)
{
    return value ? json_integer((json_int_t)value) : json_null();
}

static json_t *usage_json(const struct sandbox_status *status)
{
    bool runs = status->state == SANDBOX_RUNNING;
    json_t *j = json_object();
    json_object_set_new(j, "cpuMs",
                        runs && status->cpu_us ? json_integer((json_int_t)(status->cpu_us / 1000))
                                               : json_null());
    json_object_set_new(j, "memoryBytes", known(status->memory_bytes));
    json_object_set_new(j, "diskBytes", known(status->disk_bytes));
    json_object_set_new(j, "processes", known(status->pids));
    return j;
}

static json_t *environment_member(const struct session_row *row, const char *name)
{
    AUTO_JSON environment = json_loads(row->environment_json, JSON_ALLOW_NUL, NULL);
    json_t *value = json_object_get(environment, name);
    return value ? json_incref(value) : json_null();
}

static json_t *sandbox_json(const struct service *service, const struct session_row *row,
                            const struct sandbox_status *status, int64_t now)
{
    const struct parent_config *config = &service->config;
    bool runs = status->state == SANDBOX_RUNNING;
    json_t *j = json_pack("{s:s, s:s, s:s, s:b, s:s}", "sessionId", row->id, "type", "sandbox",
                          "provider", config->provider, "ownKernel", config->caps.own_kernel,
                          "state", state_words[status->state]);
    json_object_set_new(j, "reason",
                        status->reason[0] ? json_str(str_of(status->reason)) : json_null());
    json_object_set_new(j, "image",
                        status->image[0] ? json_str(str_of(status->image))
                                         : environment_member(row, "image"));
    json_object_set_new(j, "resources", environment_member(row, "resources"));
    json_object_set_new(j, "limits",
                        !runs                     ? json_null()
                        : status->limits_enforced ? json_string("enforced")
                                                  : json_string("none"));
    json_set_time(j, "startedAt", runs ? status->started_at_ms : -1);
    json_object_set_new(j, "uptimeMs",
                        runs ? json_integer(now - status->started_at_ms) : json_null());
    json_object_set_new(j, "usage", usage_json(status));
    json_set_time(j, "measuredAt", now);
    return j;
}

static err sandbox_get(struct ctx *ctx)
{
    struct session_row row;
    struct sandbox_status status;
    TRY(ctx_session(ctx, &row));
    TRY(sandboxes_measure(session_manager_sandboxes(ctx->service->sessions), row.id, &status));
    return reply_json(ctx, 200,
                      sandbox_json(ctx->service, &row, &status, clock_wall_ms(ctx->clock)));
}

/* All of a tenant's */

/* Writes the value of one running sandbox; false when it is not known. */
typedef bool (*metric_value)(const struct sample *s, struct buf *out);

static bool add_known(struct buf *out, uint64_t value)
{
    buf_printf(out, "%llu", (unsigned long long)value);
    return value > 0;
}

static bool cpu_seconds(const struct sample *s, struct buf *out)
{
    buf_printf(out, "%.6f", (double)s->status.cpu_us / 1e6);
    return s->status.cpu_us > 0;
}

static bool memory_bytes(const struct sample *s, struct buf *out)
{
    return add_known(out, s->status.memory_bytes);
}

static bool disk_bytes(const struct sample *s, struct buf *out)
{
    return add_known(out, s->status.disk_bytes);
}

static bool processes(const struct sample *s, struct buf *out)
{
    return add_known(out, s->status.pids);
}

static bool uptime_seconds(const struct sample *s, struct buf *out)
{
    buf_printf(out, "%.3f", (double)(s->at_ms - s->status.started_at_ms) / 1e3);
    return s->status.started_at_ms > 0;
}

static const struct {
    const char *name, *type, *help;
    metric_value value;
} metrics[] = {
    {"pi_sandbox_cpu_seconds_total", "counter", "Processor time used since its start.",
     cpu_seconds},
    {"pi_sandbox_memory_bytes", "gauge", "Memory in use.", memory_bytes},
    {"pi_sandbox_disk_bytes", "gauge", "Disk space its files take beyond the image.", disk_bytes},
    {"pi_sandbox_processes", "gauge", "Processes and threads.", processes},
    {"pi_sandbox_uptime_seconds", "gauge", "Time since its start.", uptime_seconds},
};

static void add_metric(struct buf *out, size_t metric, const struct sample *all, size_t n)
{
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", metrics[metric].name, metrics[metric].help,
               metrics[metric].name, metrics[metric].type);
    for (size_t i = 0; i < n; i++) {
        AUTO_BUF value = {0};
        if (all[i].status.state == SANDBOX_RUNNING && metrics[metric].value(&all[i], &value))
            buf_printf(out, "%s{session=\"%s\"} %s %lld\n", metrics[metric].name, all[i].status.id,
                       value.p, (long long)all[i].at_ms);
    }
}

static void add_states(struct buf *out, const struct sample *all, size_t n)
{
    buf_add_c(out, "# HELP pi_sandboxes Sandboxes there are, by state.\n"
                   "# TYPE pi_sandboxes gauge\n");
    for (int state = SANDBOX_STOPPED; state <= SANDBOX_CRASHED; state++) {
        size_t count = 0;
        for (size_t i = 0; i < n; i++)
            count += (int)all[i].status.state == state;
        buf_printf(out, "pi_sandboxes{state=\"%s\"} %zu\n", state_words[state], count);
    }
}

static err metrics_get(struct ctx *ctx)
{
    AUTO_BUF out = {0};
    struct sample *all = NULL;
    size_t n =
        sandboxes_samples(session_manager_sandboxes(ctx->service->sessions), ctx->tenant, &all);
    add_states(&out, all, n);
    for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++)
        add_metric(&out, i, all, n);
    mem_free(all);
    return reply_bytes(ctx, 200, "text/plain; version=0.0.4; charset=utf-8", buf_str(&out));
}

ROUTES(sandbox, {GET, "/v1/sessions/:id/sandbox", sandbox_get, .scope = SCOPE_READ},
       {GET, "/metrics", metrics_get, .scope = SCOPE_READ}, )
