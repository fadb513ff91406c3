#include "cli/service.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/secret.h"
#include "base/str.h"
#include "cli/logging.h"
#include "parent/hosts.h"
#include "parent/roles.h"
#include "parent/vault_key.h"

#define CONTROL_KEY_BYTES 32

static err choose_uids(const struct invocation *call, struct parent_options *o)
{
    uint64_t base;
    const char *text = option_value(call, "uid-base");
    if (!str_to_u64(str_of(text), &base) || base < 1 || base > 900000)
        return fail(E_INVALID, "--uid-base %s: give a number from 1 to 900000", text);
    o->uid_base = (uid_t)base;
    o->separate = roles_can_separate(o->uid_base);
    return 0;
}

static err open_keys(struct service_setup *s)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/keys/vault.key", s->data.path) >= (int)sizeof path)
        return fail(E_INVALID, "the path of the data directory is too long");
    TRY(vault_key_open(path, &s->key));
    return data_key(&s->data, "control.key", s->options.config.control_key, CONTROL_KEY_BYTES);
}

static err open_objects(const struct invocation *call, struct service_setup *s)
{
    const char *url = option_value(call, "objects");
    if (url == NULL)
        return 0;
    const char *path = strncmp(url, "file:", 5) == 0 ? url + 5 : url;
    if (strstr(path, "://"))
        return fail(E_INVALID,
                    "--objects %s: objects are kept in a folder; other stores are not "
                    "built yet",
                    url);
    struct parent_options *o = &s->options;
    TRY(data_open_objects(path, o->separate ? o->uid_base : geteuid(), s->objects_dir));
    if (strlen(s->objects_dir) >= sizeof o->config.objects_dir)
        return fail(E_INVALID, "the path %s is too long", s->objects_dir);
    o->objects_dir = s->objects_dir;
    return 0;
}

/* The role args point to literals: they outlive the call. */
static void set_role_args(const struct invocation *call, struct service_setup *s)
{
    static const char *const levels[] = {"debug", "info", "warn", "error"};
    s->role_args[0] = "--log-format";
    s->role_args[1] = logging_format_name(logging_format(option_value(call, "log-format")));
    s->role_args[2] = "--log-level";
    s->role_args[3] = levels[logging_level(option_value(call, "log-level"))];
}

static err run_setup(struct service_setup *s)
{
    struct parent_message *reply = mem_alloc(sizeof *reply);
    err e = parent_setup(&s->options, reply);
    if (!e && reply->credential.length < sizeof s->token) {
        snprintf(s->tenant, sizeof s->tenant, "%.*s", ID_MAX - 1, reply->credential.session);
        memcpy(s->token, reply->credential.data, reply->credential.length);
    }
    secret_wipe(reply, sizeof *reply);
    mem_free(reply);
    return e;
}

err service_open(const struct invocation *call, struct service_setup *out)
{
    *out = (struct service_setup){.data = {.lock = -1}};
    struct parent_options *o = &out->options;
    o->listen_fd = o->tls_cert_fd = o->tls_key_fd = -1;
    TRY(places_find(option_value(call, "runtime"), option_value(call, "harness"), &out->places));
    if (strlen(out->places.runtime) >= sizeof o->config.runtime_dir)
        return fail(E_INVALID, "the path %s is too long", out->places.runtime);
    TRY(choose_uids(call, o));
    TRY(data_open(option_value(call, "data"), o->separate ? o->uid_base : geteuid(), &out->data));
    TRY(open_objects(call, out));
    TRY(open_keys(out));
    set_role_args(call, out);
    o->data = &out->data;
    o->runtime_dir = out->places.runtime;
    o->harness_dir = out->places.harness;
    o->key = out->key;
    o->role_args = out->role_args;
    return run_setup(out);
}

void service_close(struct service_setup *s)
{
    secret_wipe(s->token, sizeof s->token);
    secret_wipe(s->options.config.control_key, sizeof s->options.config.control_key);
    vault_key_free(s->key);
    s->key = NULL;
    data_close(&s->data);
}
