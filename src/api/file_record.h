/* What is known of a file, kept beside its object (§28): a database that came back from a copy may
   have lost the last minute's rows, and a file must not become bytes without a name. Also finding
   such files again. Everything here blocks. */
#ifndef API_FILE_RECORD_H
#define API_FILE_RECORD_H

#include "api/file_rows.h"

struct service;

/* Comes after the object and before its row is `ready`. */
err file_record_put(struct objects *o, const char *tenant, const struct file_row *row);
/* Goes after the object. 0 when there is none. */
err file_record_remove(struct objects *o, const char *tenant, const char *id);

/* Looks through the objects of files whose ids are older than this process: one without a row gets
   it back from its record; one without either is removed when it is a day old. What belongs to a
   tenant that nobody knows stays. `restored`: the database is an older copy, so that a file whose
   row is still `pending` may have been finished, too. Once a start. */
err files_reconcile(struct service *service, int64_t started_at_ms, bool restored);

#endif
