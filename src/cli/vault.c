/* pi-managed vault rotate-key: another key pair for the vaults, while the service is down. The new
   private key stands beside the old one (vault.key.next) until every box is sealed anew in one
   transaction; then it takes its place. A crash on the way leaves both, and each box can be opened
   with one of them: run it again. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/secret.h"
#include "cli/command.h"
#include "cli/database.h"
#include "parent/data.h"
#include "parent/vault_key.h"

#define KEY_FILE_MAX 256

static const char sql_all[] = "/* all tenants */ SELECT tenant_id, id, sealed FROM credentials"
                              " WHERE sealed IS NOT NULL";
static const char sql_put[] = "UPDATE credentials SET sealed = $3, updated_at = $4"
                              " WHERE tenant_id = $1 AND id = $2";

struct rotation {
    const struct invocation *call;
    char path[PATH_MAX], next_path[PATH_MAX];
    struct vault_key *old, *next;
};

struct box {
    struct box *following;
    char *tenant, *id;
    struct str sealed;
};

static err read_boxes(struct db_conn *c, struct arena *a, struct box **out)
{
    struct db_rows *r;
    struct box *first = NULL;
    TRY(db_query(c, sql_all, DB_NO_ARGS, &r));
    while (db_next(r)) {
        struct box *b = arena_alloc(a, sizeof *b);
        *b = (struct box){.following = first,
                          .tenant = db_text(r, 0, a),
                          .id = db_text(r, 1, a),
                          .sealed = arena_str(a, db_str(r, 2))};
        first = b;
    }
    TRY(db_rows_done(r));
    *out = first;
    return 0;
}

static err seal_anew(const struct rotation *r, struct str sealed, struct buf *out)
{
    AUTO_SECRET plain = NULL;
    TRY(vault_open(r->old, sealed, &plain)); /* knows the next key too */
    json_t *contents = NULL;
    TRY(json_read(secret_bytes(plain), &contents));
    err e = vault_seal(vault_key_public(r->next), contents, out);
    struct str copy = json_get_str(contents, "secret");
    if (copy.n)
        secret_wipe((void *)(uintptr_t)copy.p, copy.n);
    json_decref(contents);
    return e;
}

static err seal_all(struct db_conn *c, void *arg)
{
    struct rotation *r = arg;
    AUTO_ARENA a = arena_new();
    struct box *boxes = NULL;
    int64_t now = clock_wall_ms(clock_real());
    unsigned done = 0;
    TRY(read_boxes(c, a, &boxes));
    for (struct box *b = boxes; b; b = b->following) {
        AUTO_BUF sealed = {0};
        if (seal_anew(r, b->sealed, &sealed)) {
            fprintf(stderr, "pi-managed: the credential %s of %s stays as it is: %s\n", b->id,
                    b->tenant, err_text());
            continue;
        }
        TRY(db_exec(c, sql_put,
                    DB_ARGS(DB_C(b->tenant), DB_C(b->id), DB_B(buf_str(&sealed)), DB_I(now)),
                    NULL));
        done++;
    }
    printf("%u credential%s sealed with the new key.\n", done, done == 1 ? " is" : "s are");
    return 0;
}

static int in_child(struct rotation *r)
{
    struct db *db = NULL;
    err e = database_open(r->call, &db); /* as the owner of the database from here on */
    if (!e)
        e = db_write(db, seal_all, r);
    db_close(db);
    fflush(stdout);
    return e ? command_fail(r->call) : 0;
}

static err seal_in_child(struct rotation *r)
{
    int status;
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0)
        return fail_errno("fork");
    if (pid == 0)
        _exit(in_child(r));
    if (waitpid(pid, &status, 0) < 0)
        return fail_errno("wait for the process that seals");
    return WIFEXITED(status) && WEXITSTATUS(status) == 0
               ? 0
               : fail(E_IO, "the credentials could not be sealed anew; the old key stays in use");
}

static err open_keys(struct rotation *r, const char *data)
{
    if (snprintf(r->path, sizeof r->path, "%s/keys/vault.key", data) >= PATH_MAX - 8)
        return fail(E_INVALID, "the path of the data directory is too long");
    memcpy(r->next_path, r->path, sizeof r->path);
    strcat(r->next_path, ".next"); /* fits: see above */
    if (access(r->path, F_OK) < 0)
        return fail(E_NOT_FOUND, "there is no vault key at %s", r->path);
    TRY(vault_key_open(r->path, &r->old));
    TRY(vault_key_open(r->next_path, &r->next)); /* made now, or left by one that broke off */
    if (memcmp(vault_key_public(r->old), vault_key_public(r->next), 32) != 0)
        return 0;
    vault_key_free(r->next); /* all but removed by one that broke off at its very end */
    r->next = NULL;
    if (unlink(r->next_path) < 0)
        return fail_errno("remove %s", r->next_path);
    return vault_key_open(r->next_path, &r->next);
}

/* The next key takes the old one's place. Both names may stand for it for a moment. */
static err promote(const struct rotation *r)
{
    AUTO_BUF text = {0};
    buf_reserve(&text, KEY_FILE_MAX); /* so that no copy is left behind by growing */
    err e = fd_read_file(r->next_path, KEY_FILE_MAX, &text);
    if (!e)
        e = fd_write_file_atomic(r->path, buf_str(&text), 0600);
    secret_wipe(text.p, text.cap);
    if (!e && unlink(r->next_path) < 0)
        e = fail_errno("remove %s", r->next_path);
    return e;
}

static err rotate(struct rotation *r, const char *data)
{
    TRY(open_keys(r, data));
    TRY(seal_in_child(r));
    return promote(r);
}

static err owner_of_database(const char *data, uid_t *out)
{
    char path[PATH_MAX];
    struct stat st;
    if (snprintf(path, sizeof path, "%s/control.db", data) >= PATH_MAX || lstat(path, &st) < 0)
        return fail(E_NOT_FOUND, "there is no data directory of a service at %s", data);
    *out = st.st_uid;
    return 0;
}

static int run_rotate(const struct invocation *call)
{
    struct rotation r = {.call = call};
    struct data_dir dir = {.lock = -1};
    uid_t control = 0;
    err e = owner_of_database(option_value(call, "data"), &control);
    if (!e)
        e = data_open(option_value(call, "data"), control, &dir);
    if (!e)
        e = rotate(&r, dir.path);
    vault_key_free(r.old);
    vault_key_free(r.next);
    data_close(&dir);
    if (e)
        return command_fail(call);
    printf("The new key is %s. Back it up apart from the database: backups of the database from "
           "before need the old key.\n",
           r.path);
    return 0;
}

static const struct option options[] = {OPTION_DATA, {0}};

const struct command vault_rotate_key_command = {
    .name = "vault rotate-key",
    .arguments = "",
    .summary = "Gives the vaults another key pair, while the service is down.",
    .details = "Every sealed credential is opened with the old key and sealed with a new one, in "
               "one transaction.\nStop the service first. If it breaks off, run it again.",
    .options = options,
    .run = run_rotate,
};
