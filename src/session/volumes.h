/* What is done to volumes beside their rows: measured, removed; both by the parent. Blocks until
   done; any thread. */
#ifndef SESSION_VOLUMES_H
#define SESSION_VOLUMES_H

#include "base/clock.h"
#include "db/db.h"
#include "parent/link.h"

/* Brings a volume's size up to date, if it may have changed. */
err volume_measure(struct parent_link *parent, struct db *db, const struct clock *clock,
                   const char *tenant, const char *id);
/* After volume_row_hide: the folder, then the row. What fails is done by the sweep; E_CONFLICT
   while the sandbox of a session that was deleted is still there. */
err volume_remove(struct parent_link *parent, struct db *db, const char *tenant, const char *id);
/* All that is to be removed; then what may have changed is measured, as far as it goes within a few
 * seconds: the rest next time. */
err volumes_sweep(struct parent_link *parent, struct db *db, const struct clock *clock);

#endif
