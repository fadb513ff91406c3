/* Volumes as rows (§6.2, R48): what a tenant's volumes are called, how large they were last, and
   which sessions have them. The folders are the sandbox provider's (sandbox/mounts.h); a row comes
   before its folder and goes after it: ready → deleting. Functions run inside db_read or db_write;
   strings they return live in the arena. */
#ifndef SESSION_VOLUME_ROWS_H
#define SESSION_VOLUME_ROWS_H

#include "base/arena.h"
#include "base/id.h"
#include "db/db.h"
#include "sandbox/provider.h"

#define VOLUMES_MAX 1000 /* of a tenant */

struct volume_row {
    char id[ID_MAX];
    const char *name;
    int64_t bytes, measured_at_ms;     /* 0: not yet */
    int64_t sessions;                  /* that are not deleted and have started with it */
    int64_t created_at_ms, used_at_ms; /* used_at 0: not yet */
};

/* A new one, not used yet. E_CONFLICT (name_taken); E_QUOTA (too_many_volumes) beyond VOLUMES_MAX.
 */
err volume_row_make(struct db_conn *c, const char *tenant, const char *name, int64_t now_ms,
                    char out_id[ID_MAX]);
/* For a start of the session's sandbox: each mounted volume of `named` by its id in `out`, which is
   otherwise the same; rows that are missing are made. E_QUOTA when the tenant stores more than it
   may already and could write more. */
err volume_rows_attach(struct db_conn *c, const char *session, const struct sandbox_spec *named,
                       int64_t now_ms, struct sandbox_spec *out);

/* E_NOT_FOUND (volume_not_found) also for another tenant's. */
err volume_row_find(struct db_conn *c, struct arena *a, const char *tenant, struct str id,
                    struct volume_row *out);
struct volume_filter {
    const char *name; /* NULL: all */
    bool ascending;
    int64_t start_at_ms; /* those behind (start_at_ms, start_id) in the order of the list */
    const char *start_id;
    uint32_t limit;
};
err volume_row_list(struct db_conn *c, struct arena *a, const char *tenant,
                    const struct volume_filter *f, struct volume_row **out, size_t *out_n);
/* From here on nobody sees it, its name is free, its bytes are given back. E_NOT_FOUND; E_CONFLICT
   (volume_in_use) while a session has it. */
err volume_row_hide(struct db_conn *c, const char *tenant, struct str id);
/* After its folder is gone. */
err volume_row_forget(struct db_conn *c, const char *tenant, const char *id);
/* The session is gone for good. */
err volume_rows_leave(struct db_conn *c, const char *tenant, const char *session);

struct volume_ref {
    char tenant[ID_MAX], id[ID_MAX];
    int64_t used_at_ms;
    bool in_use; /* a sandbox that has it runs */
};
/* Of all tenants, at most `limit`: those to remove; those to measure, in no order.
 */
err volume_rows_deleting(struct db_conn *c, size_t limit, struct volume_ref *out, size_t *out_n);
err volume_rows_unmeasured(struct db_conn *c, size_t limit, struct volume_ref *out, size_t *out_n);
/* The same of one; *out_found: it is there and to be measured. */
err volume_row_unmeasured(struct db_conn *c, const char *tenant, const char *id,
                          struct volume_ref *out, bool *out_found);
/* `ref` as it was before the measuring: what was used since stays to be measured. The tenant's
   counter moves along, whether it fits or not. */
err volume_row_measured(struct db_conn *c, const struct volume_ref *ref, int64_t bytes,
                        int64_t now_ms);

#endif
