/* /healthz: the process answers. /readyz: every part that a session needs is there, or why not. */
#include "api/routes.h"
#include "api/service.h"
#include "broker/link.h"
#include "db/db.h"
#include "harness/harness.h"

static err healthz(struct ctx *ctx)
{
    return reply_json(ctx, 200, json_pack("{s:s, s:s}", "status", "ok", "version", PM_VERSION));
}

static void add_check(json_t *checks, const char *name, bool ok, const char *reason)
{
    json_t *check = json_object();
    json_object_set_new(check, "ok", json_boolean(ok));
    if (!ok)
        json_set_str(check, "reason", str_of(reason));
    json_object_set_new(checks, name, check);
}

static bool is_all_ok(const json_t *checks)
{
    const char *name;
    json_t *check;
    json_object_foreach((json_t *)checks, name, check)
    {
        if (!json_get_bool(check, "ok", false))
            return false;
    }
    return true;
}

static err readyz(struct ctx *ctx)
{
    const struct service *s = ctx->service;
    json_t *checks = json_object();
    int version;
    bool db_ok = db_version(s->db, &version) == 0;
    add_check(checks, "database", db_ok, "the database does not answer");
    add_check(checks, "broker", broker_link_up(s->broker), "the broker is not connected");
    char text[ERR_TEXT_MAX] = "";
    bool spare = false;
    harness_ready(s->harness, &spare, text, sizeof text);
    add_check(checks, "harness", spare, text[0] ? text : "no Pi host is ready yet");
    add_check(checks, "sandbox", s->config.caps.usable, s->config.caps.reason);
    bool ready = is_all_ok(checks);
    json_t *j = json_object();
    json_set_str(j, "status", ready ? STR("ready") : STR("not_ready"));
    json_object_set_new(j, "checks", checks);
    return reply_json(ctx, ready ? 200 : 503, j);
}

ROUTES(meta, {GET, "/healthz", healthz, .scope = SCOPE_NONE, .where = HTTP_INLINE},
       {GET, "/readyz", readyz, .scope = SCOPE_NONE}, )
