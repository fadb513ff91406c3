/* The files of a session's resources (§6.3) on their way from the object store into the working
   directory of its sandbox. Done once for each file system: a mark beside the outputs says that
   they are there, and goes where the files go (a stop, a fork, the end). Blocks; any thread. */
#ifndef SESSION_STAGING_H
#define SESSION_STAGING_H

#include "base/err.h"
#include "hands/frames.h" /* SANDBOX_WORKDIR, beneath which paths lie */

struct objects;

/* resources_json: array of {fileId, path, key}; `socket` is where pi-hands listens. E_NOT_FOUND
   when a file was deleted before it could be staged. */
err staging_run(struct objects *objects, const char *socket, const char *resources_json);

#endif
