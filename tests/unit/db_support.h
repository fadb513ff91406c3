/* A new database in a folder of its own, for one unit test. */
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "db/db.h"

struct test_db {
    char dir[64], url[128];
    struct db *db;
};

static inline void test_db_open(struct test_db *t)
{
    snprintf(t->dir, sizeof t->dir, "/tmp/pm-test-db-XXXXXX");
    assert_non_null(mkdtemp(t->dir));
    snprintf(t->url, sizeof t->url, "sqlite:%s/control.db", t->dir);
    assert_int_equal(db_open(t->url, &t->db), 0);
}

/* Closes it and removes the folder, which must hold nothing else. */
static inline void test_db_close(struct test_db *t)
{
    static const char *const names[] = {"control.db", "control.db-wal", "control.db-shm"};
    db_close(t->db);
    for (size_t i = 0; i < 3; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", t->dir, names[i]);
        unlink(path);
    }
    assert_int_equal(rmdir(t->dir), 0);
}

/* For suites whose tests need nothing but a database: *state is a struct test_db. */
static inline int test_db_set_up(void **state)
{
    struct test_db *t = mem_alloc(sizeof *t);
    test_db_open(t);
    *state = t;
    return 0;
}

static inline int test_db_tear_down(void **state)
{
    test_db_close(*state);
    mem_free(*state);
    return 0;
}
