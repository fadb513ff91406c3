/* The one-shot role `setup`: opens (and so migrates) the database as control will, with control's
   uid and mounts, and makes the first tenant and API key when there are none. Answers the parent
   (parent_setup) with credential.session = the only tenant, "" if there are several, and
   credential.data = the new API key, if one was made. */
#ifndef CLI_SETUP_H
#define CLI_SETUP_H

int setup_main(void);

#endif
