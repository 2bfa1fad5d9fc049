# Lets the CUDA library load with glibc 2.28 wherever it was linked. What it takes of threads and of dlopen is for
# NVIDIA's runtime, which is linked in. glibc 2.34 moved these functions into libc.so.6 under a new version, so a
# library that is linked there asks for 2.34. Here are libraries as 2.28 has them, with the old versions and nothing
# else; they are linked with and then left behind, and every glibc still has the functions under these versions.
#
# A function that is missing here gets the version of the build machine, which `make wheel` notices.

set(gpn_ops_pthread
  condattr_setpshared create detach getspecific join key_create key_delete kill mutex_trylock mutexattr_destroy
  mutexattr_init mutexattr_setpshared mutexattr_settype once rwlock_destroy rwlock_init rwlock_rdlock
  rwlock_timedrdlock rwlock_timedwrlock rwlock_tryrdlock rwlock_trywrlock rwlock_unlock rwlock_wrlock
  rwlockattr_destroy rwlockattr_init rwlockattr_setpshared setspecific spin_destroy spin_init spin_lock spin_trylock
  spin_unlock
)
list(TRANSFORM gpn_ops_pthread PREPEND pthread_)
list(APPEND gpn_ops_pthread sem_destroy sem_init sem_post sem_timedwait sem_trywait sem_wait)
set(gpn_ops_dl dlclose dlerror dlmopen dlopen dlsym dlvsym)
set(gpn_ops_rt shm_open shm_unlink)

function(gpn_ops_link_old_glibc target)
  # The first version that glibc had for the processor, but for one function that is younger.
  if(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
    set(versions "GLIBC_2.2.5 { *; };\nGLIBC_2.3.4 { dlmopen; };\n")
  elseif(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
    set(versions "GLIBC_2.17 { *; };\n")
  else()
    return()
  endif()
  set(directory "${CMAKE_CURRENT_BINARY_DIR}/old_glibc")
  file(CONFIGURE OUTPUT "${directory}/versions" CONTENT "${versions}" @ONLY)

  foreach(library pthread.so.0 dl.so.2 rt.so.1)
    string(REGEX MATCH "^([a-z]+)(.*)" matched ${library})
    set(name ${CMAKE_MATCH_1})
    set(suffix ${CMAKE_MATCH_2})
    set(functions ${gpn_ops_${name}})
    list(TRANSFORM functions REPLACE "(.+)" "extern \"C\" void \\1() {}\n")
    list(JOIN functions "" functions)
    file(CONFIGURE OUTPUT "${directory}/${name}.cpp" CONTENT "${functions}" @ONLY)

    add_library(gpn_ops_${name} SHARED "${directory}/${name}.cpp")
    target_link_options(gpn_ops_${name} PRIVATE -nostdlib "LINKER:--version-script,${directory}/versions")
    set_target_properties(gpn_ops_${name} PROPERTIES OUTPUT_NAME ${name} SUFFIX ${suffix}
      LIBRARY_OUTPUT_DIRECTORY "${directory}" CXX_VISIBILITY_PRESET default)
  endforeach()
  # Needed only by what follows on the command line: the runtime.
  target_link_libraries(${target} PRIVATE
    -Wl,--no-as-needed gpn_ops_pthread gpn_ops_dl gpn_ops_rt -Wl,--as-needed)
endfunction()
