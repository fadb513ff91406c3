/* What a local Pi would find in the working directory (R44): context files (AGENTS.md and kin) and
   skills. They are found and read inside the sandbox, by the rg that is in each one: links lead
   nowhere else, and nothing but regular files is opened. harness/workdir.mjs makes of it what Pi
   would. Blocks; any thread. */
#ifndef SESSION_WORKDIR_H
#define SESSION_WORKDIR_H

#include "base/buf.h"
#include "base/err.h"

/* Appends rg's JSON records, a line each (LF after each); nothing when nothing is there. `socket`
   is where pi-hands listens. What is too large is left out: files over 1 MiB, all over 4 MiB. */
err workdir_read(const char *socket, struct buf *out, size_t *out_lines);

#endif
