/* Files (§8.9, §21): what the service calls beside the routes. */
#ifndef API_FILES_H
#define API_FILES_H

#include "base/err.h"

struct service;
struct ctx;
struct session_row;

/* Finishes what crashes and deletions left: objects whose row says that they go, and uploads that
   were never finished within a day. Now and then. Blocks. */
err files_sweep(struct service *service);

#endif
