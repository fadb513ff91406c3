/* Files as rows (§21). A row comes before its object and goes after it, so that no object is ever
   without one: pending → ready → deleting. Functions run inside db_read or db_write; strings they
   return live in the arena. */
#ifndef API_FILE_ROWS_H
#define API_FILE_ROWS_H

#include "base/arena.h"
#include "base/id.h"
#include "base/json.h"
#include "db/db.h"
#include "objects/objects.h"

struct file_row {
    char id[ID_MAX];
    const char *name, *mime_type, *metadata_json;
    char sha256[OBJECT_HASH_MAX];
    int64_t size, created_at_ms;
    const char *session, *path, *changed_at; /* of an output; NULL: uploaded */
};

/* Where its content lies. */
void file_key(const char *tenant, const char *id, char out[OBJECT_KEY_MAX]);
json_t *file_json(const struct file_row *row);

/* A row for an object that is about to be written. */
err file_begin(struct db_conn *c, const char *tenant, const char *id, int64_t now_ms);
/* The object is there: the file, too. Counts its bytes: E_QUOTA. An output takes the place of an
   older one of the same path, whose id is then `deleting`. */
err file_finish(struct db_conn *c, const char *tenant, const struct file_row *row);
/* E_NOT_FOUND (file_not_found) also for another tenant's. */
err file_find(struct db_conn *c, struct arena *a, const char *tenant, struct str id,
              struct file_row *out);
struct file_filter {
    const char *session; /* its outputs; NULL: all files */
    bool has_after, ascending;
    int64_t after_at_ms;
    const char *after_id;
    uint32_t limit;
};
err file_list(struct db_conn *c, struct arena *a, const char *tenant, const struct file_filter *f,
              struct file_row **out, size_t *out_n);
/* From here on nobody sees it; its bytes are given back. E_NOT_FOUND */
err file_hide(struct db_conn *c, const char *tenant, struct str id);
/* What the database says of a file that an object is there of. */
enum file_state {
    FILE_NO_TENANT,
    FILE_UNKNOWN,
    FILE_PENDING,
    FILE_READY,
    FILE_DELETING
};
err file_state(struct db_conn *c, const char *tenant, const char *id, enum file_state *out);
/* After its object is gone. */
err file_forget(struct db_conn *c, const char *tenant, const char *id);

struct file_ref {
    char tenant[ID_MAX], id[ID_MAX];
};
/* Of all tenants: those whose object was to go, and those that were begun before `before_ms` and
   never finished. At most `limit`. */
err file_unfinished(struct db_conn *c, int64_t before_ms, size_t limit, struct file_ref *out,
                    size_t *out_n);

#endif
