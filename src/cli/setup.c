#include "cli/setup.h"

#include <stdio.h>
#include <string.h>

#include "api/keys.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/secret.h"
#include "db/db.h"
#include "objects/objects.h"
#include "parent/request.h"
#include "session/backup.h"

#define FIRST_TENANT "default"
#define FIRST_KEY "first key"

struct first { /* what the transaction makes */
    struct key_new key;
    char tenant[ID_MAX];
};

static err only_tenant(struct db_conn *c, void *arg)
{
    AUTO_ARENA a = arena_new();
    struct tenant_row *rows = NULL;
    size_t n = 0;
    TRY(tenant_list(c, a, &rows, &n));
    if (n == 0)
        return fail(E_NOT_FOUND, "there is no tenant yet");
    snprintf(arg, ID_MAX, "%s", n == 1 ? rows[0].id : "");
    return 0;
}

static err insert_first(struct db_conn *c, void *arg)
{
    struct first *f = arg;
    TRY(tenant_insert(c, FIRST_TENANT, f->key.created_at_ms, f->tenant));
    snprintf(f->key.tenant, sizeof f->key.tenant, "%s", f->tenant);
    return key_insert(c, &f->key);
}

static err make_first(struct db *db, struct parent_credential *out)
{
    struct first f = {0};
    TRY(key_draw("", FIRST_KEY, SCOPE_ADMIN, clock_wall_ms(clock_real()), &f.key));
    err e = db_write(db, insert_first, &f);
    if (!e) {
        memcpy(out->session, f.tenant, sizeof out->session);
        out->length = (uint32_t)strlen(f.key.token);
        memcpy(out->data, f.key.token, out->length);
    }
    secret_wipe(&f, sizeof f);
    return e;
}

/* A lost database comes back from the object store before an empty one is made in its place. */
static err bring_back(const struct parent_config *config)
{
    struct objects *objects = NULL;
    bool restored = false;
    TRY(objects_open(config->objects_dir, &objects));
    err e = backup_restore(objects, config->data_dir, &restored);
    objects_close(objects);
    if (!e && restored)
        log_warn("there was no database: its copy was brought back from the object store");
    return e;
}

static err set_up(const struct parent_config *config, struct parent_credential *out)
{
    char url[PARENT_TEXT_MAX + 32];
    struct db *db = NULL;
    TRY(bring_back(config));
    snprintf(url, sizeof url, "sqlite:%s/control.db", config->data_dir);
    TRY(db_open(url, &db));
    err e = db_read(db, only_tenant, out->session);
    if (e == E_NOT_FOUND)
        e = make_first(db, out);
    db_close(db);
    return e;
}

int setup_main(void)
{
    struct parent_message *m = mem_alloc(sizeof *m);
    struct parent_message *reply = mem_alloc(sizeof *reply);
    int fds[FD_PASS_MAX];
    size_t n = 0;
    if (fd_recv(PARENT_FD, m, sizeof *m, &n, fds) || n != sizeof *m ||
        m->verb != PARENT_NOTE_CONFIG) {
        log_error("setup got no configuration");
        return 1;
    }
    reply->status = set_up(&m->config, &reply->credential);
    if (reply->status)
        snprintf(reply->text, sizeof reply->text, "%.*s", (int)sizeof reply->text - 1, err_text());
    err e = fd_send(PARENT_FD, reply, sizeof *reply, NULL, 0);
    secret_wipe(reply, sizeof *reply);
    mem_free(reply);
    mem_free(m);
    return e ? 1 : 0;
}
