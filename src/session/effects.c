/* Carrying out what the turn machine decided, after its lines are durable. */
#include "base/log.h"
#include "base/mem.h"
#include "broker/catalog.h"
#include "hands/frames.h"
#include "session/context.h"
#include "session/credentials.h"
#include "session/live.h"
#include "session/toolset.h"

#include <sodium.h>
#include <stdio.h>

/* ---- opening a host ---- */

static void host_failed(struct live *l, const char *code, const char *text)
{
    manager_post_input(
        l->m, l->id,
        &(struct turn_input){.kind = TURN_HOST_OPENED, .ok = false, .name = code, .text = text},
        false);
}

static void make_token(char out[65])
{
    unsigned char raw[32];
    randombytes_buf(raw, sizeof raw);
    sodium_bin2hex(out, 65, raw, sizeof raw);
}

/* R40: a catalogue provider needs a key; a custom address gets one only if it is bound to it (R4a).
 */
static err describe(struct live *l, struct arena *a, struct broker_session *out)
{
    const json_t *model = json_object_get(l->agent, "model");
    const char *base_url = json_get_c(model, "baseUrl"), *provider = json_get_c(model, "provider");
    const char *vaults = l->row.vault_ids_json, *origin;
    struct broker_session s = {.token = l->token,
                               .tenant = l->tenant,
                               .session = l->id,
                               .provider = provider,
                               .model = json_get_c(model, "id"),
                               .api = json_get_c(model, "api"),
                               .base_url = base_url,
                               .custom = base_url != NULL};
    if (s.custom) {
        TRY(credential_origin(base_url, a, &origin));
        TRY(credential_find(l->m->o.db, a, l->tenant, vaults, origin, &s.sealed));
    } else {
        const struct catalog_model *known = catalog_find(l->m->o.catalog, provider, s.model);
        if (known == NULL || known->api == NULL)
            return fail_as(E_UNAVAILABLE, "model_not_found",
                           "Pi's catalogue has no usable model %s/%s", provider, s.model);
        s.api = known->api;
        s.base_url = known->base_url;
        TRY(credential_for_provider(l->m->o.db, a, l->tenant, vaults, provider, &s.sealed));
    }
    *out = s;
    return 0;
}

static void register_at_broker(struct live *l, const struct broker_session *s)
{
    buf_clear(&l->sealed);
    buf_add_str(&l->sealed, s->sealed);
    broker_open_session(l->m->broker, s);
}

/* §12.5: a key that was changed or archived is so from the next request on. */
static err refresh_credential(struct live *l, struct arena *a)
{
    struct broker_session s;
    TRY(describe(l, a, &s));
    if (!str_eq(s.sealed, buf_str(&l->sealed)))
        register_at_broker(l, &s);
    return 0;
}

static size_t count_lines(struct str lines)
{
    size_t n = 0;
    for (size_t i = 0; i < lines.n; i++)
        n += lines.p[i] == '\n';
    return n;
}

static json_t *open_envelope(struct live *l, const json_t *model, size_t lines, size_t workdir)
{
    json_t *e = json_pack("{s:s, s:s, s:s, s:I}", "op", "open", "cwd", SANDBOX_WORKDIR, "token",
                          l->token, "lines", (json_int_t)lines);
    json_object_set_new(e, "workdirLines", json_integer((json_int_t)workdir));
    json_t *m = json_deep_copy(model);
    const char *level = json_get_c(model, "thinkingLevel");
    json_object_del(m, "thinkingLevel");
    json_object_set_new(m, "custom", json_boolean(json_get_c(model, "baseUrl") != NULL));
    json_object_set_new(e, "model", m);
    json_object_set_new(e, "thinkingLevel", level ? json_string(level) : json_null());
    const json_t *prompt = json_object_get(l->agent, "systemPrompt");
    json_object_set_new(e, "systemPrompt",
                        json_is_string(prompt) ? json_copy((json_t *)prompt) : json_null());
    json_object_set_new(e, "tools", toolset_names(json_object_get(l->agent, "tools")));
    return e;
}

static err try_open(struct live *l, struct str workdir, struct arena *a)
{
    const json_t *model = json_object_get(l->agent, "model");
    effects_close_host(l);
    make_token(l->token);
    AUTO_BUF lines = {0};
    size_t n = 0;
    TRY(context_lines(l->m->logs_dir, l->tenant, l->id, &lines, &n));
    struct broker_session s;
    TRY(describe(l, a, &s));
    register_at_broker(l, &s);
    size_t extra = count_lines(workdir);
    buf_add_str(&lines, workdir);
    harness_open(l->m->harness, l->tenant, l->id, open_envelope(l, model, n + extra, extra),
                 buf_str(&lines));
    return 0;
}

void effects_close_host(struct live *l)
{
    if (l->token[0] == 0)
        return;
    harness_close(l->m->harness, l->id);
    broker_close_session(l->m->broker, l->token);
    sodium_memzero(l->token, sizeof l->token);
}

void effects_open_host(struct live *l, struct str workdir)
{
    AUTO_ARENA a = arena_new();
    if (try_open(l, workdir, a))
        host_failed(l, err_code(), err_text());
}

/* ---- the table of effects ---- */

typedef void (*effect_fn)(struct live *l, const struct turn_effect *e, struct arena *a);

static void host_open(struct live *l, const struct turn_effect *e, struct arena *a)
{
    (void)e;
    (void)a;
    /* R44; a new working directory is empty by construction and needs no look. */
    if (l->workdir_used && json_get_bool(l->agent, "projectContext", true))
        tool_read_workdir(l);
    else
        effects_open_host(l, (struct str){0});
}

static void send_op(struct live *l, const char *op, struct str lines, size_t count, bool reply,
                    const char *member, const char *value)
{
    json_t *e = json_pack("{s:s}", "op", op);
    if (count)
        json_object_set_new(e, "lines", json_integer((json_int_t)count));
    if (member)
        json_object_set_new(e, member, value ? json_string(value) : json_null());
    harness_send(l->m->harness, l->id, e, lines, reply);
}

static void drop_note(struct live *l)
{
    mem_free(l->sandbox_note);
    l->sandbox_note = NULL;
}

static void host_prompt(struct live *l, const struct turn_effect *e, struct arena *a)
{
    (void)a;
    send_op(l, "prompt", e->bytes, 1, true, "note", l->sandbox_note);
    drop_note(l);
}

static void host_steer(struct live *l, const struct turn_effect *e, struct arena *a)
{
    (void)a;
    send_op(l, "steer", e->bytes, 1, true, NULL, NULL);
}

static void host_resume(struct live *l, const struct turn_effect *e, struct arena *a)
{
    (void)a;
    size_t n = count_lines(e->bytes);
    struct str lines = e->bytes;
    if (lines.n)
        lines.n--; /* the sender puts the last LF */
    send_op(l, "resume", lines, n, true, "note", l->sandbox_note);
    drop_note(l);
}

static void host_abort(struct live *l, const struct turn_effect *e, struct arena *a)
{
    (void)e;
    (void)a;
    send_op(l, "abort", (struct str){0}, 0, true, NULL, NULL);
}

static void host_result(struct live *l, const struct turn_effect *e, struct arena *a)
{
    (void)a;
    send_op(l, "tool_result", e->bytes, 1, false, "call", e->id);
}

static void start_tool(struct live *l, const struct turn_effect *e, struct arena *a)
{
    (void)a;
    l->workdir_used = true;
    tool_start(l, e->id, e->name, e->bytes);
}

static void attach_tool(struct live *l, const struct turn_effect *e, struct arena *a)
{
    (void)a;
    tool_attach(l, e->id, e->name);
}

static void cancel_tool(struct live *l, const struct turn_effect *e, struct arena *a)
{
    (void)a;
    tool_cancel(l, e->id);
}

static void ack_tool(struct live *l, const struct turn_effect *e, struct arena *a)
{
    (void)a;
    tool_ack(l, e->id);
}

static void warm_sandbox(struct live *l, const struct turn_effect *e, struct arena *a)
{
    (void)e;
    (void)a;
    tool_warm(l);
}

static void request_go(struct live *l, const struct turn_effect *e, struct arena *a)
{
    if (refresh_credential(l, a)) {
        broker_request_refuse(l->m->broker, e->id, 403, err_code(), err_text());
        return;
    }
    broker_request_go(l->m->broker, e->id, e->number);
}

static void request_hold(struct live *l, const struct turn_effect *e, struct arena *a)
{
    (void)a;
    broker_request_hold(l->m->broker, e->id, e->number);
}

static void request_refuse(struct live *l, const struct turn_effect *e, struct arena *a)
{
    (void)a;
    broker_request_refuse(l->m->broker, e->id, 424, e->name, e->text);
}

static void request_cancel(struct live *l, const struct turn_effect *e, struct arena *a)
{
    (void)e;
    (void)a;
    broker_request_cancel(l->m->broker, l->id);
}

static void frame(struct live *l, const struct turn_effect *e, struct arena *a)
{
    (void)a;
    hub_publish(l->m->hub, l->id,
                &(struct hub_frame){.type = e->name, .json = e->bytes, .delta_of = e->text});
}

static void status(struct live *l, const struct turn_effect *e, struct arena *a)
{
    (void)l; /* live.c writes the row, once for the whole run */
    (void)e;
    (void)a;
}

static const effect_fn effects[] = {
    [EFFECT_HOST_OPEN] = host_open,
    [EFFECT_HOST_PROMPT] = host_prompt,
    [EFFECT_HOST_STEER] = host_steer,
    [EFFECT_HOST_RESUME] = host_resume,
    [EFFECT_HOST_ABORT] = host_abort,
    [EFFECT_HOST_RESULT] = host_result,
    [EFFECT_TOOL_START] = start_tool,
    [EFFECT_TOOL_ATTACH] = attach_tool,
    [EFFECT_TOOL_CANCEL] = cancel_tool,
    [EFFECT_TOOL_ACK] = ack_tool,
    [EFFECT_SANDBOX_WARM] = warm_sandbox,
    [EFFECT_REQUEST_GO] = request_go,
    [EFFECT_REQUEST_HOLD] = request_hold,
    [EFFECT_REQUEST_REFUSE] = request_refuse,
    [EFFECT_REQUEST_CANCEL] = request_cancel,
    [EFFECT_FRAME] = frame,
    [EFFECT_STATUS] = status,
};

void effects_perform(struct live *l, const struct turn_effect *e, struct arena *a)
{
    assert(e->kind < sizeof effects / sizeof *effects && effects[e->kind] != NULL);
    effects[e->kind](l, e, a);
}
