# Which architectures the CUDA library is compiled for. Sets CMAKE_CUDA_ARCHITECTURES, which CMake wants before it
# first runs the compiler.
#
#   GPN_OPS_CUDA_ARCHS    as it is, in the form of CMAKE_CUDA_ARCHITECTURES
#   TORCH_CUDA_ARCH_LIST  (environment) torch's form, "8.0;8.6+PTX"; what this compiler does not know is left out
#   neither               those of GPN_OPS_DEFAULT_ARCHS that the compiler knows, and PTX for all other GPUs

set(GPN_OPS_DEFAULT_ARCHS 75 80 86 89 90 100 120)
# A GPU runs code of its own major version or compiles PTX of any lower one. So PTX of 10.0 serves 11.x and what
# comes after 12.x; a compiler that ends before 10.0 gives PTX of its last.
set(GPN_OPS_PTX_ARCH 100)

function(gpn_ops_choose_cuda_archs nvcc)
  if(GPN_OPS_CUDA_ARCHS)
    set(CMAKE_CUDA_ARCHITECTURES ${GPN_OPS_CUDA_ARCHS} PARENT_SCOPE)
    return()
  endif()

  execute_process(COMMAND "${nvcc}" --list-gpu-code OUTPUT_VARIABLE known RESULT_VARIABLE failed ERROR_VARIABLE why)
  string(REGEX MATCHALL "sm_[0-9]+" known "${known}")
  list(TRANSFORM known REPLACE "sm_" "")
  if(failed OR NOT known)
    message(FATAL_ERROR "gpn_ops: ${nvcc} --list-gpu-code names no architecture (nvcc >= 12.0 is needed): ${why}")
  endif()

  set(archs)
  set(ignored)
  string(REGEX MATCHALL "[^ ;,]+" words "$ENV{TORCH_CUDA_ARCH_LIST}")
  foreach(word IN LISTS words)
    set(number)
    if(word MATCHES "^([0-9]+)\\.([0-9])([af]?)(\\+PTX)?$")
      set(number ${CMAKE_MATCH_1}${CMAKE_MATCH_2})
      set(suffix "${CMAKE_MATCH_3}")
      set(ptx "${CMAKE_MATCH_4}")
    endif()
    if(number IN_LIST known)
      list(APPEND archs ${number}${suffix}-real)
      if(ptx)
        list(APPEND archs ${number}${suffix}-virtual)
      endif()
    else()
      list(APPEND ignored ${word})
    endif()
  endforeach()
  if(ignored)
    list(JOIN ignored ", " ignored)
    list(JOIN known ", " names)
    message(WARNING "gpn_ops: TORCH_CUDA_ARCH_LIST: ignored ${ignored}. Expected numbers such as 8.0 or 9.0+PTX, "
      "of architectures that ${nvcc} knows: ${names}")
  endif()

  if(NOT archs)
    foreach(arch IN LISTS GPN_OPS_DEFAULT_ARCHS)
      if(arch IN_LIST known)
        list(APPEND archs ${arch}-real)
        if(arch LESS_EQUAL GPN_OPS_PTX_ARCH)
          set(ptx ${arch}-virtual)
        endif()
      endif()
    endforeach()
    list(APPEND archs ${ptx})
  endif()
  list(REMOVE_DUPLICATES archs)
  set(CMAKE_CUDA_ARCHITECTURES ${archs} PARENT_SCOPE)
endfunction()
